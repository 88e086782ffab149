"""Live: one trace, one report at a time."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.randomness import SECURE, Draws, KeyedDraws, SeededDraws
from hereish.core.run import NO_WINDOW, Run
from hereish.core.step import Prepared, Release, decide, in_window, prepare
from hereish.core.types import Floats, Kind, PerLane
from hereish.core.validation import checked_point, checked_time, run_fault
from hereish.errors import BudgetExhaustedError, ParameterError, PointError, StateError

NOT_PRIVATE = "NOT PRIVATE: the randomness can be repeated by others."


@dataclass(frozen=True, slots=True)
class Report:
    """One release. All of it may be public."""

    value: Any  # a tuple of coordinates, or on a Line one number
    kind: Kind
    cost: float
    at: datetime
    covers: str  # which reports share the budget that this one was paid from
    eps_test: float = 0.0  # 0 if there was no test
    eps_noise: float = 0.0  # 0 if no noise could be drawn
    threshold: float = math.inf  # ±inf if there was no test
    noise_first: bool = False  # the decision was NoiseFirst
    moves_noise: float = 0.0  # how far fresh noise was moved at most, in multiples of 1 / eps_noise


_NO = np.empty((0, 2), dtype=np.uint64)  # words of the identities that KeyedDraws ask for


class Session:
    """Reports one trace. Keeps the public run and nothing else; safe to share between threads.

    Guarantee: as its mechanism's, unless it was made with a seed.
    """

    def __init__(
        self,
        mechanism: PredictiveMechanism,
        *,
        seed: int | None = None,
        draws: Draws | KeyedDraws | None = None,
        user: str | None = None,
    ) -> None:
        if not isinstance(mechanism, PredictiveMechanism):
            raise ParameterError(f"a mechanism is needed, found {type(mechanism).__name__}")
        if draws is not None and not hasattr(draws, "private"):
            raise ParameterError(f"draws must be such as hereish.KeyedDraws, found {type(draws)}")
        if seed is not None and draws is not None:
            raise ParameterError("give a seed or draws, not both")
        if isinstance(draws, KeyedDraws) != (user is not None):
            raise ParameterError("a user is needed with KeyedDraws, and only with them")
        self.mechanism = mechanism
        self._draws = SeededDraws(seed) if seed is not None else draws or SECURE
        self._begun = _NO
        if isinstance(draws, KeyedDraws) and user is not None:
            self._begun = draws.begin(mechanism, [user])
        self._run = mechanism.run(1)
        self._covered = NO_WINDOW, mechanism.window.covers()
        self._lock = threading.RLock()
        self._busy = False

    @property
    def run(self) -> Run:
        """The public history: one lane, read-only."""
        return self._run

    @property
    def spent(self) -> float:
        """What the reports of the window of the last report cost."""
        return float(self._run.spent[0])

    @property
    def remaining(self) -> float:
        """What is left of that window's budget."""
        return self.mechanism.privacy.eps_per_m - self.spent

    @property
    def private(self) -> bool:
        """False if it was made with a seed or other draws or parts that are not private."""
        return self._draws.private and self.mechanism.private

    @property
    def guarantee(self) -> str:
        """What is promised, in a sentence."""
        return self.mechanism.guarantee if self._draws.private else NOT_PRIVATE

    def __repr__(self) -> str:
        warning = "" if self.private else ", NOT PRIVATE"
        return f"<Session: {int(self._run.reports[0])} reports, spent {self.spent:.6g}{warning}>"

    def report(self, x: Any, at: datetime) -> Report:
        """Report roughly where `x` is. Spends, remembers, and only then returns.

        Raises PointError (nothing is spent) for a bad point or time, and BudgetExhaustedError when
        the worst case does not fit and the mechanism was told to stop.
        """
        m = self.mechanism
        point = checked_point(m, x)
        at_s = checked_time(at)
        with self._lock:
            if self._busy:  # by this thread: a signal handler, or a part that reports
                raise StateError("report was called within report; nothing was spent by this call")
            self._busy = True
            try:
                if at_s[0] < self._run.times_s[0, 0]:
                    raise PointError(
                        "time goes backwards: the report before this one was made at "
                        f"{self._run.times_s[0, 0]:.6f} s (Unix time); nothing was spent"
                    )
                prepared = prepare(m, self._run, at_s)
                u = self._uniforms(prepared, point)
                release, after = decide(m, prepared, point, u, paid=self._keep)
                self._run = after
            finally:
                self._busy = False
        covers = self._covers(int(after.window[0]))
        if not release.released[0]:
            requested = _alone(prepared.cost_hard)
            raise BudgetExhaustedError(requested, m.bound.total - float(after.spent[0]), covers)
        value = release.value[0].tolist()
        return Report(
            value=value[0] if len(value) == 1 else tuple(value),
            kind=_kind(release),
            cost=float(release.cost[0]),
            at=at,
            covers=covers,
            eps_test=_alone(release.eps_test),
            eps_noise=_alone(release.eps_noise),
            threshold=_alone(release.threshold),
            noise_first=m.own_decision is NoiseFirst,
            moves_noise=m.moves_noise,
        )

    @contextmanager
    def charged(self, at: datetime, eps: float) -> Iterator[None]:
        """While this lasts, so much of the budget of the window of `at` counts as spent: by others
        who pay from the same budget. Whole quanta of the budget, see `Bound`.
        """
        m = self.mechanism
        with self._lock:
            run = in_window(m, self._run, checked_time(at))
            charged = run.spent + eps
            if not (eps >= 0.0 and m.bound.quantised(eps) == eps and m.bound.fits(charged, 0.0)):
                raise StateError("others have spent more than the budget, or no whole quanta of it")
            self._run = run._replace(spent=charged).frozen()
            try:
                yield
            finally:
                after = self._run
                if after.window[0] == run.window[0]:  # a later one has a budget of its own
                    own = after.spent - eps  # exact: whole quanta
                    # What others return can be spent, so that it is over is asked again.
                    ended = run.ended if eps > 0.0 else after.ended
                    self._run = after._replace(spent=own, ended=ended).frozen()

    def _keep(self, run: Run) -> None:
        self._run = run

    def _covers(self, window: int) -> str:
        """What the budget of this window covers; most reports are of the window of the last one."""
        known, covers = self._covered
        if window != known:
            covers = self.mechanism.window.covers(None if window == NO_WINDOW else window)
            self._covered = window, covers
        return covers

    def _uniforms(self, prepared: Prepared, point: Floats) -> Floats:
        m = self.mechanism
        if isinstance(self._draws, KeyedDraws):
            return self._draws.for_reports(m, self._begun, prepared, point)
        return np.asarray(self._draws.uniforms(m.uniforms)).reshape(1, -1)

    def to_state(self) -> dict[str, Any]:
        """The session as plain numbers, strings and lists, fit for JSON. Holds no secret.

        Raises PartError if a part cannot show its settings: nobody could tell later whose it was.
        """
        run = self._run._asdict()
        for name in _unsaved(self.mechanism):
            del run[name]
        return {
            "version": _STATE_VERSION,
            "mechanism": self.mechanism.fingerprint,
            "drawn": self._draws.drawn if isinstance(self._draws, SeededDraws) else 0,
            "run": {name: _plain(field[0].tolist()) for name, field in run.items()},
        }

    @classmethod
    def from_state(
        cls,
        mechanism: PredictiveMechanism,
        state: dict[str, Any],
        *,
        seed: int | None = None,
        draws: Draws | KeyedDraws | None = None,
        user: str | None = None,
    ) -> Session:
        """The session that `to_state` described. Its mechanism must be the same one.

        A seeded session goes on where its numbers were; a secure one never repeats any.
        """
        session = cls(mechanism, seed=seed, draws=draws, user=user)
        version = state.get("version") if isinstance(state, dict) else None
        if type(version) is not int or version != _STATE_VERSION:
            raise StateError(f"a state of version {_STATE_VERSION} from Session.to_state is needed")
        if str(state.get("mechanism")) != mechanism.fingerprint:
            raise StateError(
                f"the state was made by another mechanism: {state.get('mechanism')!r}; "
                f"this one is {mechanism.fingerprint!r}"
            )
        drawn = state.get("drawn", 0)
        if type(drawn) is not int or not 0 <= drawn < _MOST_DRAWN:
            raise StateError("the saved number of draws must be a whole number from 0")
        session._run = _restored(mechanism, session._run, state.get("run"))
        session._covers(int(session._run.window[0]))
        if seed is not None:
            session._draws = SeededDraws(seed, skip=drawn)
        return session


_STATE_VERSION = 1
_MOST_DRAWN = 2**40


def _kind(release: Release) -> Kind:
    if release.hard[0]:
        return Kind.HARD
    return Kind.EASY if math.isfinite(_alone(release.threshold)) else Kind.UNTESTED


def _alone(shared: PerLane) -> float:
    """The number of the only lane."""
    return float(shared[0] if isinstance(shared, np.ndarray) and shared.ndim else shared)


def _plain(value: Any) -> Any:
    """As JSON has it: lists, and strings for the numbers that JSON lacks."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _unsaved(m: PredictiveMechanism) -> tuple[str, ...]:
    """Fields of the run that a state does without."""
    # A digest of what stands there in full; and what a prediction that does not learn has learnt.
    return ("mechanism",) if m.width else ("mechanism", "learnt")


def _restored(m: PredictiveMechanism, empty: Run, fields: Any) -> Run:
    saved = [name for name in Run._fields if name not in _unsaved(m)]
    if not isinstance(fields, dict) or set(fields) != set(saved):
        raise StateError(f"a saved run must have the fields {', '.join(saved)}")
    try:
        restored = {name: _array(name, fields[name], getattr(empty, name)) for name in saved}
    except RecursionError:
        raise StateError("the saved run has lists far too deep within each other") from None
    run = empty._replace(**restored).frozen()
    wrong = run_fault(m, run)
    if wrong is None and not run.reports[0] and run.spent[0] > 0.0:
        wrong = "it has spent, and made no report"  # a run of a batch may have: see Bound
    if wrong is not None:
        raise StateError(f"the saved run cannot be used: {wrong}")
    return run


# What JSON has for the kinds of arrays; numbers that it lacks are texts.
_PLAIN_KINDS: dict[str, set[type]] = {"b": {bool}, "i": {int}, "f": {float, int, str}}


def _array(name: str, value: Any, like: NDArray[Any]) -> NDArray[Any]:
    """A saved field as the array of one lane that it was."""
    kinds = set(map(type, value)) if isinstance(value, list) else {type(value)}
    if list in kinds:
        kinds = set(map(type, _flat(value)))
    if not kinds <= _PLAIN_KINDS[like.dtype.kind]:
        raise StateError(f"the saved run has a broken {name}")
    try:
        array = np.array(value, dtype=like.dtype)[None]
    except (TypeError, ValueError, OverflowError):
        raise StateError(f"the saved run has a broken {name}") from None
    if array.shape != like.shape:
        raise StateError(f"the saved run has {name} of shape {array.shape}, not {like.shape}")
    return array


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value
