"""Live: one trace, one report at a time."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

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


class WindowBudget(NamedTuple):
    """What is spent of the budget of one window. Public."""

    covers: str
    level: float
    total: float  # what the level allows per metre
    spent: float

    @property
    def remaining(self) -> float:
        return max(0.0, self.total - self.spent)  # with a delta more may be spent


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
        self._also = "".join(f", {limit.covers()}" for limit in mechanism.limits)
        self._covered = NO_WINDOW, mechanism.window.covers() + self._also
        self._lock = threading.RLock()
        self._busy = False
        self._charged_s: float | None = None  # the time that others are charged for, just now
        self._forgets_refusals = False  # what others return may be spent: it is asked again

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
        """What is left of that window's budget; with a delta, of the sum of the costs alone."""
        return self._budgets(self._run)[0].remaining

    @property
    def spent_share(self) -> float:
        """What share of that budget is spent: by the sum of the costs or, with a delta, by that of
        its filter, if that is less. Whichever is less decides whether a report fits.
        """
        m, run = self.mechanism, self._run
        share = self.spent / m.bound.total
        if m.renyi is None:
            return share
        return min(share, float(run.renyi_spent[0, 0]) / m.renyi.bound.total)

    @property
    def budgets(self) -> tuple[WindowBudget, ...]:
        """What each window that covers the last report has left: first that of `remaining`, then
        the limits.
        """
        return self._budgets(self._run)

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
                if self._charged_s is not None and at_s[0] < self._charged_s:
                    raise PointError(
                        "the report is earlier than the time that others were charged for; "
                        "nothing was spent"
                    )
                prepared = prepare(m, self._run, at_s)
                u = self._uniforms(prepared, point)
                release, after = decide(
                    m, prepared, point, u, paid=lambda paid: self._keep(prepared, paid)
                )
                self._keep(prepared, after)
            finally:
                self._busy = False
        covers = self._covers(int(after.window[0]))
        if not release.released[0]:
            full = min(self._budgets(after), key=lambda budget: budget.remaining)
            raise BudgetExhaustedError(_alone(prepared.cost_hard), full.remaining, full.covers)
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
    def charged(self, at: datetime, eps: float, limits: Sequence[float] = ()) -> Iterator[None]:
        """While this lasts, so much of the budget of the window of `at` counts as spent: by others
        who pay from the same budget. Whole quanta of the budget, see `Bound`. `limits` is what they
        have spent of each of the mechanism's limits; it counts in their newest buckets.

        Reports are for `at` or later. Where anything is charged, one that is refused leaves no
        trace. Proof: budget.proof.md.
        """
        m = self.mechanism
        with self._lock:
            if self._busy or self._charged_s is not None:
                raise StateError("charged was called within report or charged")
            if m.renyi is not None:
                raise StateError("others cannot be charged where the privacy has a delta")
            before, at_s = self._run, checked_time(at)
            run = in_window(m, before, at_s)
            others = self._others(eps, limits)
            charged = run._replace(spent=run.spent + eps, limit_spent=run.limit_spent + others)
            numbers = np.append(others, eps)
            if not (
                (numbers >= 0.0).all()
                and np.array_equal(m.bound.quantised(numbers), numbers)
                and m.bound.fits(charged.spent, 0.0)
                and m.bound.fits_limits(charged.limit_spent, 0.0)
            ):
                raise StateError("others have spent more than the budget, or no whole quanta of it")
            anything = bool(numbers.any())
            try:
                self._charged_s, self._forgets_refusals = float(at_s[0]), anything
                if anything:
                    self._run = charged.frozen()
                yield
            finally:
                if anything:
                    # Only a release replaces it.
                    nothing = self._run is charged or self._run is before  # [B13]
                    self._run = before if nothing else self._refunded(run, eps, others)
                self._charged_s, self._forgets_refusals = None, False

    def _refunded(self, run: Run, eps: float, others: Floats) -> Run:
        """The run after the last release, when others have returned what `run` was charged with."""
        m, after = self.mechanism, self._run
        # That it is over is asked again, unless it was before.
        after = after._replace(ended=run.ended & after.ended)  # [B14]
        if after.window[0] == run.window[0]:  # a later one has a budget of its own
            after = after._replace(spent=after.spent - eps)  # exact: whole quanta
        if m.limiter is not None:
            after = m.limiter.refund(after, run.limit_bucket, others)
        return after.frozen()

    def _keep(self, prepared: Prepared, after: Run) -> None:
        """Go on from here; while others are charged, from releases alone."""
        if not self._forgets_refusals or after.reports[0] > prepared.run.reports[0]:  # [B15]
            self._run = after

    def _others(self, eps: float, limits: Sequence[float]) -> Floats:
        """What others have spent of each limit that is kept."""
        m = self.mechanism
        if len(limits) not in (0, len(m.limits)):
            raise StateError(f"there are {len(m.limits)} limits, and {len(limits)} were charged")
        kept = 0 if m.limiter is None else len(m.limiter)
        others = np.zeros(kept)
        if len(limits):
            others[kept - len(limits) :] = limits
        if kept > len(m.limits):  # a rolling first window
            others[0] = eps
        return others

    def _budgets(self, run: Run) -> tuple[WindowBudget, ...]:
        m = self.mechanism
        covers = m.window.covers(_number(int(run.window[0])))
        budgets = [WindowBudget(covers, m.privacy.level, m.bound.total, float(run.spent[0]))]
        # A rolling first window is the first limit as well.
        own = 0 if m.limiter is None else len(m.limiter) - len(m.limits)
        for number, limit in enumerate(m.limits, start=own):
            covers = limit.covers(_number(int(run.limit_bucket[0, number])))
            spent = float(run.limit_spent[0, number])
            total = m.bound.limits[number]
            budgets.append(WindowBudget(covers, limit.level or 0.0, total, spent))
        return tuple(budgets)

    def _covers(self, window: int) -> str:
        """What the budget of this window covers; most reports are of the window of the last one."""
        known, covers = self._covered
        if window != known:
            covers = self.mechanism.window.covers(_number(window)) + self._also
            self._covered = window, covers
        return covers

    def _uniforms(self, prepared: Prepared, point: Floats) -> Floats:
        m = self.mechanism
        if isinstance(self._draws, KeyedDraws):
            return self._draws.for_reports(m, self._begun, prepared, point)
        return np.asarray(self._draws.uniforms(m.uniforms)).reshape(1, -1)

    def to_state(self) -> dict[str, Any]:
        """The session as plain numbers, strings and lists, fit for JSON. Holds no secret.

        Raises PartError if a part cannot show its settings: nobody could tell later whose it was;
        and StateError while others are charged: what they have spent is not the session's.
        """
        with self._lock:
            if self._charged_s is not None:
                raise StateError("a session cannot be saved while others are charged")
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


def _number(window: int) -> int | None:
    return None if window == NO_WINDOW else window


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
    # A digest of what stands there in full; what a prediction that does not learn has learnt; and
    # limits where there are none.
    unused = () if m.width else ("learnt",)
    limits = () if m.limiter is not None else ("limit_bucket", "limit_spent", "limit_older")
    renyi = () if m.renyi is not None else ("renyi_spent",)
    return ("mechanism", *unused, *limits, *renyi)


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
    if wrong is None and m.limiter is not None:
        wrong = m.limiter.session_fault(run)
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
