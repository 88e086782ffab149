"""Runs that go on under another mechanism: of a new policy, or of a later version of hereish."""

from __future__ import annotations

from typing import Any

from hereish.core.fingerprint import fingerprint
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.mobility import Mobility
from hereish.core.noise_first import NoiseFirst
from hereish.core.places import PlaceMemory
from hereish.core.session import Session


def transfer_history(session: Session, m: PredictiveMechanism) -> dict[str, Any]:
    """The public history of a session, with a fresh budget of another mechanism."""
    empty = m.session().to_state()
    old = session.to_state()["run"]
    kept = ["values", "times_s", "hards", "hard_at_s", "hard_threshold", "tested_at_s"]
    if _has_same_memory(session.mechanism, m):
        kept.append("learnt")
    run = {**empty["run"], **{name: old[name] for name in kept}}
    if m.limiter is not None:  # what counts as spent of them is beside the run (limit_charges)
        run["limit_bucket"] = m.limiter.buckets(session.run.at_s)[0].tolist()
    return {**empty, "run": run}


def adopt_state(state: dict[str, Any], m: PredictiveMechanism) -> dict[str, Any]:
    """The state of the mechanism that another version of hereish built from the same policy.

    Its presets may pace or remember in another way. What was promised, the windows and what was
    spent in them are the same, and the bound needs no more. Everything else is left as it is, for
    `Session.from_state` to refuse.
    """
    stored, run = state.get("mechanism"), state.get("run")
    if stored == m.fingerprint or m.own_decision is not NoiseFirst or not isinstance(run, dict):
        return state
    promise, window = f"{m.privacy!r}; ", f"; {fingerprint(m.window)}; {m.on_exhausted}"
    if m.limits:
        window += f"; limits {fingerprint(m.limits)}"
    text = str(stored)
    decided = f"; {fingerprint(m.decision)}; " in text
    if not (text.startswith(promise) and text.endswith(window) and decided):
        return state
    empty, learnt = m.session().to_state()["run"], run.get("learnt", [])
    # What was learnt may begin anew. Nothing else may: without its `spent`, a budget would.
    needed = set(empty) - {"learnt"}
    if set(run) - {"learnt"} != needed or not isinstance(learnt, list):
        return state
    kept = {name: run[name] for name in needed}
    if m.width and len(learnt) == m.width:
        kept["learnt"] = learnt
    return {**state, "mechanism": m.fingerprint, "run": {**empty, **kept}}


def _has_same_memory(old: PredictiveMechanism, new: PredictiveMechanism) -> bool:
    """Whether places that one has learnt are places to the other: how exactly they are known is
    in metres, whatever the budgets. Hours that were counted in another time zone do no harm.
    """
    before, after = old.prediction, new.prediction
    if not (isinstance(before, PlaceMemory) and type(before) is type(after)):
        return False
    if isinstance(before, Mobility) and isinstance(after, Mobility) and before.model != after.model:
        return False
    return (before.places, before.space) == (after.places, after.space)
