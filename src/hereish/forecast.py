"""What a mechanism will mean for its user, before anything is reported. Public numbers only.

`outlook` is what one report means; `forecast` is how long the budget lasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np

from hereish import synthetic
from hereish.core.batch import sanitize
from hereish.core.decision import TestThenNoise
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import SeededDraws
from hereish.core.run import Run
from hereish.core.spaces import Space, Sphere
from hereish.core.step import prepare
from hereish.core.types import Bools, Floats, Ints, PerLane
from hereish.core.windows import Day, Every, NoReset
from hereish.errors import ParameterError

APART_M = (50.0, 100.0, 1000.0)
ORDINARY_DAY = date(2025, 6, 3)  # a Tuesday; no clock anywhere is set on it or on the day before
PEOPLE = 200
_SEED = 1  # of the made-up people and of the noise in a forecast; nobody's secret
_DAY_S = 86400.0
_FIX_S = 10.0  # how often a phone reports where no interval holds it back
_MOST_REPORTS = 1500  # looked ahead: a month of a report every half hour
_MOST_WINDOWS = 12  # of one forecast, spread over a day
_CHUNK = 64  # reports between two looks at whether anybody has budget left


@dataclass(frozen=True)
class Distinguishability:
    """How well an observer of the whole budget can tell two places apart."""

    apart_m: float
    factor: float
    """Whatever is released is at most this many times as likely from one of them."""
    even_odds_become: float
    """How sure at most an observer can be who had thought both equally likely (0.5 to 1)."""


@dataclass(frozen=True)
class Outlook:
    """The first plan of a mechanism, as its user sees it. Distances are of fresh noise."""

    eps_per_m: float
    noise_mean_m: float
    noise_90_m: float
    cost_of_noise: float  # as a share of the whole budget, like the next one
    cost_of_test: float
    threshold_m: float | None
    reports_if_all_are_hard: int
    reports_if_all_are_easy: int | None  # None where easy reports are not tested, or there are none
    reports_of_independent_noise: int
    break_even: float | None
    tells: tuple[Distinguishability, ...]
    covers: str


def outlook(mechanism: PredictiveMechanism, apart_m: Sequence[float] = APART_M) -> Outlook:
    """What to expect of a mechanism, from its first plan; a plan may change with the run."""
    m = mechanism
    total, dim = m.bound.total, m.dim
    seen = Run.empty(1, dim, m.memory)
    # The plan for a second report: there is a guess, so there is a test.
    guess = m.space.snap(np.zeros((1, dim)))
    seen = seen._replace(values=np.broadcast_to(guess[:, None], seen.values.shape))
    plan = prepare(m, seen, np.zeros(1))
    eps_noise, eps_test = _first_number(plan.eps_noise), _first_number(plan.eps_test)
    threshold = _first_number(plan.threshold)
    drawn = eps_noise * m.space.claim_factor
    return Outlook(
        eps_per_m=m.privacy.eps_per_m,
        noise_mean_m=(2.0 if dim > 1 else 1.0) / drawn,  # of Gamma(2), or of one exponential
        noise_90_m=m.space.c_noise(0.9) / drawn,
        cost_of_noise=eps_noise / total,
        cost_of_test=eps_test / total,
        threshold_m=threshold if math.isfinite(threshold) else None,
        reports_if_all_are_hard=_reports_that_fit(total - eps_noise, eps_noise + eps_test) + 1,
        reports_if_all_are_easy=(
            _reports_that_fit(total - 2 * eps_noise, eps_test) + 1 if eps_test > 0.0 else None
        ),
        reports_of_independent_noise=_reports_that_fit(total, eps_noise),
        break_even=m.break_even,
        tells=tuple(_distinguish(m.privacy.eps_per_m, apart) for apart in apart_m),
        covers=m.window.covers(),
    )


def _first_number(value: object) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def _reports_that_fit(total: float, each: float) -> int:
    return max(0, math.floor(total / each * (1.0 + 1e-9)))


def _distinguish(eps_per_m: float, apart_m: float) -> Distinguishability:
    loss = eps_per_m * apart_m
    factor = math.exp(loss) if loss < 700.0 else math.inf
    return Distinguishability(apart_m, factor, 1.0 / (1.0 + math.exp(-loss)))


@dataclass(frozen=True)
class End:
    """When a budget is exhausted: the first report that is refused."""

    reports: int
    """How many were made before it."""
    after_s: float | None
    """How long after the first report of the window; None where the interval is not known."""
    at: str | None
    """The local time, such as 12:30, where a window is a day."""


@dataclass(frozen=True)
class Forecast:
    """How long a budget lasts. An end that is None does not come before the window is over.

    The ends with a guess in their name are exact: they say what happens if every guess fails, or
    passes. For independent noise, and for fixed utility without a skip rule, no day ends sooner, or
    later; elsewhere a mixture may. The others are of made-up ordinary days
    (`hereish.synthetic.whereabouts`), on which the mechanism was run with seeded noise.
    """

    covers: str
    interval_s: float
    time_zone: str
    ends_if_every_guess_fails: End | None
    ends_early: End | None  # one day in ten ends sooner
    ends_typical: End | None  # half of the days do
    ends_late: End | None  # one day in ten lasts longer
    ends_if_every_guess_passes: End | None
    lasts_share: float | None
    """Of the windows, those whose budget is not spent before they are over; None if that is not
    known, since the interval is not or the window goes on beyond what was looked at."""
    looked_ahead: int
    """Reports: whatever ends is None has not ended after so many."""
    days: int
    """How many made-up days it is based on."""


def forecast(
    mechanism: PredictiveMechanism,
    interval_s: float,
    *,
    time_zone: str = "UTC",
    day: date = ORDINARY_DAY,
    first_report_s: float = 0.0,
) -> Forecast:
    """When the budget of a window is exhausted, with a report each `interval_s` from its start on.

    It looks at settings alone, and at nobody's places. `time_zone` is where the made-up people live
    (a window of `Day` says that itself) and `first_report_s` after midnight their first report of
    the day. An interval of 0 is one that is not known: the ends are then counts of reports.

    The day before is reported too, so that there is a release to guess from.
    """
    m, schedule = _schedule(mechanism, interval_s, time_zone, day, first_report_s)
    made, lasts = schedule.simulate(m, PEOPLE)
    after_s = np.where(lasts, np.inf, made * schedule.interval_s)
    order = np.argsort(after_s, kind="stable")
    last = len(order) - 1

    def end(reports: int, ended: bool) -> End | None:
        if not ended:
            return None
        refused_s = reports * schedule.interval_s
        known = interval_s > 0.0
        return End(
            reports, refused_s if known else None, schedule.clock(refused_s) if known else None
        )

    def share(part: float) -> End | None:
        # Rounded towards the pessimist at both ends of the range.
        which = order[math.floor(part * last)]
        return end(int(made[which]), not lasts[which])

    def if_every_guess(passes: bool) -> End | None:
        reports, over = schedule.simulate(replace(m, decision=_EveryGuess(passes)), 1)
        return end(int(reports[0]), not over[0])

    return Forecast(
        covers=m.window.covers(),
        interval_s=interval_s,
        time_zone=schedule.zone.key,
        ends_if_every_guess_fails=if_every_guess(False),
        ends_early=share(0.1),
        ends_typical=share(0.5),
        ends_late=share(0.9),
        ends_if_every_guess_passes=if_every_guess(True),
        lasts_share=_share_that_lasts(schedule, lasts) if interval_s > 0.0 else None,
        looked_ahead=schedule.looked_ahead,
        days=PEOPLE,
    )


def lasts_share(
    mechanism: PredictiveMechanism, interval_s: float, *, time_zone: str = "UTC"
) -> float | None:
    """The `lasts_share` of a forecast alone, sooner: to try many settings."""
    m, schedule = _schedule(mechanism, interval_s, time_zone, ORDINARY_DAY, 0.0)
    _, lasts = schedule.simulate(m, PEOPLE)
    return _share_that_lasts(schedule, lasts) if interval_s > 0.0 else None


def _share_that_lasts(schedule: _ReportSchedule, lasts: Bools) -> float | None:
    return None if schedule.cut and lasts.any() else float(np.mean(lasts))


def _schedule(
    mechanism: PredictiveMechanism,
    interval_s: float,
    time_zone: str,
    day: date,
    first_report_s: float,
) -> tuple[PredictiveMechanism, _ReportSchedule]:
    if not isinstance(mechanism.space, Sphere):
        raise ParameterError(
            "a forecast is made on days of people, in latitude and longitude; found "
            f"{type(mechanism.space).__name__}"
        )
    if not 0.0 <= interval_s < math.inf:
        raise ParameterError(f"interval_s must be a number from 0, found {interval_s!r}")
    m = replace(mechanism, on_exhausted="stop")  # the budget ends when it does, whatever follows
    zone = m.window.time_zone if isinstance(m.window, Day) else time_zone
    Day(zone)  # raises with a message if there is no such time zone
    return m, _ReportSchedule(m, interval_s or _FIX_S, ZoneInfo(zone), day, first_report_s)


@dataclass(frozen=True)
class _EveryGuess(TestThenNoise):
    """In place of the private test: every guess that would be tested passes, or fails."""

    passes: bool
    uniforms = 1
    private = False

    def __call__(
        self, space: Space, x: Floats, guess: Floats, eps: PerLane, threshold: PerLane, u: Floats
    ) -> Bools:
        tested = np.isfinite(np.broadcast_to(threshold, (len(x),)))
        return np.where(tested, self.passes, np.equal(threshold, np.inf))

    def c_test(self, delta: float) -> float:
        return 0.0  # it has no noise


class _ReportSchedule:
    """The reports of made-up people: when they are made, and from where."""

    def __init__(
        self,
        m: PredictiveMechanism,
        interval_s: float,
        zone: ZoneInfo,
        day: date,
        first_report_s: float,
    ) -> None:
        self.interval_s = interval_s
        self.cut = isinstance(m.window, NoReset)  # whether a window goes on beyond its last report
        self.zone = zone
        self._daily = isinstance(m.window, Day)
        midnight_s = [
            datetime.combine(day + timedelta(days=n), time(), tzinfo=zone).timestamp()
            for n in (-1, 0, 1)
        ]
        start_s = midnight_s[1] + first_report_s
        if isinstance(m.window, Day):
            parts = [
                np.arange(begin + first_report_s, end, interval_s)
                for begin, end in pairwise(midnight_s)
            ]
            self._at_s = np.concatenate(parts)
        elif isinstance(m.window, NoReset):
            self._at_s = start_s + interval_s * np.arange(_MOST_REPORTS)
        else:
            length_s = _DAY_S  # of windows of unknown length
            if isinstance(m.window, Every):
                length_s = m.window.duration.total_seconds()
                start_s = math.ceil(start_s / length_s) * length_s
            reports = math.ceil(length_s * math.ceil(_DAY_S / length_s) / interval_s)
            before = math.ceil(min(length_s, _DAY_S) / interval_s)
            self.cut = reports > _MOST_REPORTS
            numbers = np.arange(-before, min(reports, _MOST_REPORTS))
            self._at_s = start_s + interval_s * numbers
        self._start_s = start_s
        index = m.window.index(self._at_s)
        bounds = [0, len(self._at_s)]
        if index is not None:
            bounds[1:1] = [int(i) for i in np.flatnonzero(np.diff(index)) + 1]
        self._windows = list(pairwise(bounds))
        counted = [i for i, (a, _) in enumerate(self._windows) if self._at_s[a] >= start_s]
        self._counted = counted[:: math.ceil(len(counted) / _MOST_WINDOWS)]
        self.looked_ahead = max(b - a for a, b in (self._windows[i] for i in self._counted))

    def clock(self, after_s: float) -> str | None:
        """The local time so long after the first report, where a window is a day."""
        if not self._daily:
            return None
        return datetime.fromtimestamp(self._start_s + after_s, self.zone).strftime("%H:%M")

    def simulate(self, m: PredictiveMechanism, people: int) -> tuple[Ints, Bools]:
        """For each person and window: the reports that were made, and whether it lasted for all."""
        run = m.run(people)
        draws = SeededDraws(_SEED)
        made, lasts = [], []
        for number, (begin, end) in enumerate(self._windows):
            # A window that is not counted only leaves a release to guess from.
            if number not in self._counted and number + 1 not in self._counted:
                continue
            reports = np.zeros(people, dtype=np.int64)
            due = 0
            for first in range(begin, end, _CHUNK):
                at_s = self._at_s[first : min(first + _CHUNK, end)]
                places = synthetic.whereabouts(people, _SEED, self._clock_s(at_s))
                out = sanitize(
                    m,
                    places.reshape(-1, 2),
                    np.tile(at_s, people),
                    len(at_s) * np.arange(people + 1),
                    draws=draws,
                    run=run,
                )
                released = out.released.reshape(people, -1)
                reports += released.sum(axis=1)
                due += len(at_s)
                run = run if out.run is None else out.run
                if not released[:, -1].any():
                    break  # nobody has any left
            if number in self._counted:
                made.append(reports)
                lasts.append(reports == due)
        return np.concatenate(made), np.concatenate(lasts)

    def _clock_s(self, at_s: Floats) -> Floats:
        """Seconds of the local clock since midnight."""
        local = [datetime.fromtimestamp(moment, self.zone) for moment in at_s]
        return np.array([t.hour * 3600.0 + t.minute * 60.0 + t.second for t in local])
