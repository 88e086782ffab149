"""What learns and paces gives the same bits live, in batch, in pieces and after a restart.

A table of places is carried from report to report, so one bit that depended on the other lanes
would grow into another release.
"""

from __future__ import annotations

import json
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from hereish import KeyedDraws, PredictiveMechanism, Run, Sanitized, Session, sanitize
from hereish.core import batch
from hereish.core.places import PlaceMemory
from hereish.core.types import Floats
from hereish.testing import FixedDraws
from tests.support.whole_days import SPACES, Traces, live, people, presets, uniforms

KEY = bytes(range(32))
LENGTHS = [0, 1, 40, 1, 2, 0, 25, 25, 60, 3, 12, 0]
CASES = {
    f"{name}, {place}": m for place, space in SPACES.items() for name, m in presets(space).items()
}


def same(one: Sanitized, other: Sanitized) -> bool:
    names = ("value", "released", "hard", "eps_test", "eps_noise", "threshold", "spent")
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names)


def same_run(one: Run, other: Run) -> bool:
    return all(
        a.tobytes() == b.tobytes() and a.dtype == b.dtype for a, b in zip(one, other, strict=True)
    )


def of_case(m: PredictiveMechanism, seed: int = 1) -> tuple[Traces, Floats]:
    data = people(m.space, LENGTHS, seed)
    return data, uniforms(m, len(data.at_s), seed)


@pytest.mark.parametrize("case", CASES)
def test_a_session_and_a_batch_with_the_same_uniforms_give_the_same_bits(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LANES", 5)
    monkeypatch.setattr(batch, "POINTS", 20)
    m = CASES[case]
    seen: set[str] = set()
    for seed in (1, 2):
        data, u = of_case(m, seed)
        out = sanitize(m, *data, uniforms=u, run=m.run(len(LENGTHS)))
        assert out.run is not None
        for trace in range(len(LENGTHS)):
            rows = data.rows(trace)
            session = m.session(draws=FixedDraws(u[rows]))
            value, cost, kind = live(session, data.points[rows], data.at_s[rows])
            assert kind == out.kind[rows].tolist()
            assert value.tobytes() == out.value[rows].tobytes()
            assert cost.tobytes() == out.cost[rows].tobytes()
            assert same_run(session.run, out.run.take([trace])), "and the same is learnt"
            seen |= set(kind)
    assert {"hard", "easy"} <= seen
    assert ("untested" in seen) >= ("quiet" in case)
    assert ("" in seen) >= ("accuracy" in case)


@pytest.mark.parametrize("case", CASES)
def test_results_depend_neither_on_the_cut_nor_on_the_order_of_the_lanes(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = CASES[case]
    data, u = of_case(m)
    whole = sanitize(m, *data, uniforms=u)
    for lanes, points in product((1, 3, 100), (1, 12, 1000)):
        monkeypatch.setattr(batch, "LANES", lanes)
        monkeypatch.setattr(batch, "POINTS", points)
        assert same(whole, sanitize(m, *data, uniforms=u))
    monkeypatch.undo()
    order = np.random.default_rng(4).permutation(len(LENGTHS))
    rows = np.concatenate([np.arange(data.rows(i).start, data.rows(i).stop) for i in order])
    offsets = np.cumsum([0, *np.array(LENGTHS)[order]])
    moved = sanitize(m, data.points[rows], data.at_s[rows], offsets, uniforms=u[rows])
    assert moved.value.tobytes() == whole.value[rows].tobytes()
    assert moved.cost.tobytes() == whole.cost[rows].tobytes()


@pytest.mark.parametrize("case", CASES)
def test_pieces_are_the_whole_and_leave_a_callers_run_as_it_is(case: str) -> None:
    m = CASES[case]
    data, u = of_case(m)
    whole = sanitize(m, *data, uniforms=u, run=m.run(len(LENGTHS)))
    run, value = m.run(len(LENGTHS)), np.empty_like(whole.value)
    for part in range(3):
        pieces = [
            np.arange(start, end)[(end - start) * part // 3 : (end - start) * (part + 1) // 3]
            for start, end in pairwise(data.offsets)
        ]
        rows = np.concatenate(pieces)
        offsets = np.cumsum([0, *map(len, pieces)])
        given = (m, data.points[rows], data.at_s[rows], offsets)
        before = [field.tobytes() for field in run]
        out = sanitize(*given, uniforms=u[rows], run=run)
        # It is overwritten step by step within a batch, and nowhere else.
        assert before == [field.tobytes() for field in run]
        again = sanitize(*given, uniforms=u[rows], run=run)
        assert same(out, again)
        assert out.run is not None
        assert not any(np.shares_memory(a, b) for a, b in zip(out.run, run, strict=True) if a.size)
        value[rows], run = out.value, out.run
    assert value.tobytes() == whole.value.tobytes()
    assert whole.run is not None
    assert same_run(run, whole.run)


@pytest.mark.parametrize("case", CASES)
def test_a_session_that_was_saved_as_json_goes_on_with_the_same_bits(case: str) -> None:
    m = CASES[case]
    data = people(m.space, [50], 3)
    whole = live(m.session(seed=5), data.points, data.at_s)
    for cut in (0, 1, 2, 23, 50):
        first = m.session(seed=5)
        before = live(first, data.points[:cut], data.at_s[:cut])
        state = json.loads(json.dumps(first.to_state(), allow_nan=False))
        second = Session.from_state(m, state, seed=5)
        assert same_run(first.run, second.run)
        after = live(second, data.points[cut:], data.at_s[cut:])
        assert np.concatenate([before[0], after[0]]).tobytes() == whole[0].tobytes()
        assert np.concatenate([before[1], after[1]]).tobytes() == whole[1].tobytes()


@pytest.mark.parametrize("case", CASES)
def test_keyed_draws_repeat_what_was_learnt_and_released(case: str) -> None:
    m = CASES[case]
    data, _ = of_case(m)
    users = [f"user {i}" for i in range(len(LENGTHS))]
    given: dict[str, Any] = {"draws": KeyedDraws(KEY), "users": users, "run": m.run(len(LENGTHS))}
    out, again = sanitize(m, *data, **given), sanitize(m, *data, **given)
    assert same(out, again)
    assert out.run is not None
    assert again.run is not None
    assert same_run(out.run, again.run)
    for trace in (2, 8):
        rows = data.rows(trace)
        session = m.session(draws=KeyedDraws(KEY), user=users[trace])
        value, _, _ = live(session, data.points[rows], data.at_s[rows])
        assert value.tobytes() == out.value[rows].tobytes()


@pytest.mark.parametrize("place", SPACES)
def test_memory_is_put_to_use_in_these_traces(place: str) -> None:
    # Otherwise the tests above would say little: guesses that are not the last release, and noise
    # that is released as the mean of a place.
    m = presets(SPACES[place])["whole day"]
    data = people(m.space, [60] * 20)
    u = uniforms(m, len(data.at_s))
    out = sanitize(m, *data, uniforms=u)
    forgetful = presets(m.space, prediction=PlaceMemory(m.space, places=1, reach=1e-9))
    other = sanitize(forgetful["whole day"], *data, uniforms=u)
    both = out.hard & other.hard
    assert np.count_nonzero((out.value != other.value)[both].any(axis=1)) > 20
    kept = np.zeros(len(data.at_s), dtype=np.bool_)
    kept[1:] = (out.value[1:] == out.value[:-1]).all(axis=1)
    elsewhere = ~np.isin(np.arange(len(kept)), data.offsets) & ~out.hard & ~kept
    assert np.count_nonzero(elsewhere & (out.kind == "easy")) > 5
    assert np.count_nonzero(elsewhere & (out.kind == "untested")) == 0
