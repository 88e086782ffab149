"""What a mechanism will mean for its user, before anything is reported. Public numbers only.

`outlook` is what one report means; `forecast` is how long the budget lasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from hereish._made_up_days import MadeUpReports, ReportSchedule, spends_by_the_clock
from hereish.core.decision import Decision, Question
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.pacing import Paced, Steady
from hereish.core.renyi import refuse_delta
from hereish.core.rolling import Rolling
from hereish.core.spaces import Space, Sphere
from hereish.core.step import Prepared, prepare
from hereish.core.types import Bools, Floats, PerLane, take_numbers, take_rows
from hereish.core.windows import Day, Every, Month, NoReset, Window
from hereish.errors import ParameterError

APART_M = (50.0, 100.0, 1000.0)
ORDINARY_DAY = date(2025, 6, 3)  # a Tuesday; no clock anywhere is set on it or on the day before
PEOPLE = 200
# Fewer of them where budgets last for very many reports, so that a forecast takes seconds.
_FEWEST_PEOPLE = 10
_MOST_STEPS = 100_000
_FIX_S = 10.0  # how often a phone reports where no interval holds it back
_OFTEN_S = 60.0  # reports more often than that are forecast as one per minute, if by the clock
_HALF_HOUR_S = 1800.0
_PARTS = 4  # of a window, whose errors are told apart


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
    """The first plan of a mechanism, as its user sees it. Distances are of fresh noise.

    Costs are shares of the whole budget. A manager that spends by the clock plans anew for each
    report: its numbers are those of the first report of a window that is not in quiet hours, half
    an hour after the last one.
    """

    eps_per_m: float
    noise_mean_m: float
    noise_90_m: float
    cost_of_noise: float
    cost_of_test: float
    cost_of_worst: float  # of a report with a guess: what must be left for it
    threshold_m: float | None
    reports_if_all_are_hard: int | None  # None where plans change, so that there is no such number
    reports_if_all_are_easy: int | None  # and where easy reports are not tested, or there are none
    reports_of_independent_noise: int  # of the same size
    break_even: float | None
    tells: tuple[Distinguishability, ...]
    covers: str


def outlook(mechanism: PredictiveMechanism, apart_m: Sequence[float] = APART_M) -> Outlook:
    """What to expect of a mechanism, from its first plan; a plan may change with the run."""
    m = mechanism
    refuse_delta(m.privacy, "an outlook is")
    total, dim = m.bound.total, m.dim
    first, then = _first_plans(m)
    eps_noise, eps_test = _first_number(then.eps_noise), _first_number(then.eps_test)
    easy, hard = _first_number(then.cost_easy), _first_number(then.cost_hard)
    left = total - _first_number(first.cost_hard)
    threshold = _first_number(then.threshold)
    drawn = eps_noise * m.space.claim_factor
    varies = isinstance(m.budget, Paced) or (isinstance(m.budget, Steady) and m.budget.settle > 0.0)
    no_easy = varies or isinstance(m.budget, Steady) or easy == 0.0
    return Outlook(
        eps_per_m=m.privacy.eps_per_m,
        noise_mean_m=(2.0 if dim > 1 else 1.0) / drawn,  # of Gamma(2), or of one exponential
        noise_90_m=m.space.c_noise(0.9) / drawn,
        cost_of_noise=eps_noise / total,
        cost_of_test=eps_test / total,
        cost_of_worst=hard / total,
        threshold_m=threshold if math.isfinite(threshold) else None,
        reports_if_all_are_hard=None if varies else 1 + _reports_that_fit(left, hard),
        # Each of them must leave room for a hard one.
        reports_if_all_are_easy=(
            None if no_easy else 1 + _reports_that_fit(left - hard + easy, easy)
        ),
        reports_of_independent_noise=_reports_that_fit(total, eps_noise),
        break_even=m.break_even,
        tells=tuple(_distinguish(m.privacy.eps_per_m, apart) for apart in apart_m),
        covers=m.window.covers(),
    )


class RevealedInPeriod(NamedTuple):
    """What all budgets of a period allow together."""

    period: str
    level: float  # within the mechanism's radius


# With the most days that they have, and the months.
_PERIODS = {"a day": (1, 1), "a month": (31, 1), "a year": (366, 12)}


def adds_up(mechanism: PredictiveMechanism) -> tuple[RevealedInPeriod, ...]:
    """What the reports of a day, a month and a year may reveal together: the tightest of what the
    windows allow, each as often as it comes in that period at most. Of settings alone.

    A day is one of 24 hours: the longer one of a year, when clocks are set back, may hold one more
    of windows that roll.
    """
    m = mechanism
    refuse_delta(m.privacy, "sums are")
    windows = [(m.window, m.privacy.level), *((one.window, one.level or 0.0) for one in m.limits)]
    return tuple(
        RevealedInPeriod(
            period, min(level * _count_windows(window, m, *length) for window, level in windows)
        )
        for period, length in _PERIODS.items()
    )


def _count_windows(window: Window, m: PredictiveMechanism, days: int, months: int) -> float:
    """How many windows there are in so many days, which are so many months, at most."""
    # Of another time zone, the first has begun before; clocks may have been set back by an hour.
    other = isinstance(window, (Day, Month)) and window.time_zone != _time_zone(m)
    length = timedelta(days=days, hours=days > 1)
    if isinstance(window, NoReset):
        return 1
    if isinstance(window, Day):
        return days + other
    if isinstance(window, Month):
        return months + other
    if isinstance(window, Rolling):
        return -(-length // window.duration)
    if isinstance(window, Every):  # the first may have begun before
        return -(-length // window.duration) + 1
    return math.inf  # of a user's own


def _time_zone(m: PredictiveMechanism) -> str:
    """Whose days and months these are: those of the first calendar."""
    windows = [m.window, *(one.window for one in m.limits)]
    zones = [one.time_zone for one in windows if isinstance(one, (Day, Month))]
    return zones[0] if zones else "UTC"


def _first_plans(m: PredictiveMechanism) -> tuple[Prepared, Prepared]:
    """What the first report ever may cost, and another one at that time, which has a guess."""
    at_s = np.array([_first_moment_s(m)])
    empty = m.empty_run(1)
    guess = m.space.snap(np.zeros((1, m.dim)))
    seen = empty._replace(values=np.broadcast_to(guess[:, None], empty.values.shape))
    if isinstance(m.budget, (Paced, Steady)):  # what it asks depends on when it asked last
        last_s = at_s - _HALF_HOUR_S
        times_s = np.broadcast_to(last_s[:, None], empty.times_s.shape)
        seen = seen._replace(times_s=times_s, tested_at_s=last_s)
    return prepare(m, empty, at_s), prepare(m, seen, at_s)


def _first_moment_s(m: PredictiveMechanism) -> float:
    """When a window begins, or its quiet hours are over."""
    zone = ZoneInfo(m.window.time_zone if isinstance(m.window, Day) else "UTC")
    midnight_s = datetime.combine(ORDINARY_DAY, time(), tzinfo=zone).timestamp()
    quiet = m.budget.quiet if isinstance(m.budget, Paced) else None
    if quiet is None or not quiet.covers(np.array([midnight_s]))[0]:
        return midnight_s
    return datetime.combine(ORDINARY_DAY, quiet.ends, tzinfo=ZoneInfo(quiet.time_zone)).timestamp()


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
class ExpectedError:
    """How far releases lie from the truth in a part of the windows; None where there are none."""

    from_s: float  # after the first report of the window
    until_s: float
    at: str | None  # the local time when that part begins, where a window is a day
    mean_m: float | None
    within_90_m: float | None  # nine out of ten


@dataclass(frozen=True)
class Forecast:
    """How long a budget lasts, and how far off its reports are.

    An end that is None does not come before the window is over. The ends with a guess in their name
    are exact: they say what happens if every guess fails, or passes. For noise of one size without
    a skip rule no day ends sooner, or later; elsewhere a mixture may. The other ends, and the
    errors, are of made-up ordinary days (`hereish.synthetic`), on which the mechanism was run with
    seeded noise.
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
    known, since the interval is not, and matters, or the window goes on beyond what was looked
    at."""
    looked_ahead: int
    """Reports: whatever ends is None has not ended after so many."""
    days: int
    """How many made-up days it is based on."""
    error: ExpectedError
    """Of all reports of a window that were made."""
    error_by_part: tuple[ExpectedError, ...]
    """Of those of each quarter of it."""


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
    refuse_delta(mechanism.privacy, "a forecast is")
    m, every_report = _schedule(mechanism, interval_s, time_zone, day, first_report_s)
    schedule = every_report
    if spends_by_the_clock(m) and schedule.interval_s < _OFTEN_S:
        # Tests cost the same per hour then, and a forecast takes seconds.
        _, schedule = _schedule(mechanism, _OFTEN_S, time_zone, day, first_report_s)
    people = _people(m, schedule)
    simulated = schedule.simulate(m, people)
    made, lasts, _ = simulated
    after_s = np.where(lasts, np.inf, made * schedule.interval_s)
    order = np.argsort(after_s, kind="stable")
    last = len(order) - 1

    def end(made: int, ended: bool, by: ReportSchedule = schedule) -> End | None:
        if not ended:
            return None
        refused_s = made * by.interval_s
        reports = math.floor(refused_s / every_report.interval_s)
        known = interval_s > 0.0
        return End(reports, refused_s if known else None, by.clock(refused_s) if known else None)

    def share(part: float) -> End | None:
        # Rounded towards the pessimist at both ends of the range.
        which = order[math.floor(part * last)]
        return end(int(made[which]), not lasts[which])

    def if_every_guess(passes: bool) -> End | None:
        by = schedule if passes else every_report  # fresh noise for each report soon ends
        decision = _EveryGuess(m.decider, passes)
        reports, over, _ = by.simulate(replace(m, decision=decision), 1)
        return end(int(reports[0]), not over[0], by)

    return Forecast(
        covers=m.window.covers(),
        interval_s=interval_s,
        time_zone=schedule.zone.key,
        ends_if_every_guess_fails=if_every_guess(False),
        ends_early=share(0.1),
        ends_typical=share(0.5),
        ends_late=share(0.9),
        ends_if_every_guess_passes=if_every_guess(True),
        lasts_share=_share_that_lasts(m, schedule, lasts, interval_s),
        looked_ahead=every_report.looked_ahead,
        days=people,
        error=_expected_error(schedule, simulated, 0, schedule.looked_ahead),
        error_by_part=tuple(
            _expected_error(schedule, simulated, first, last)
            for first, last in pairwise(_part_bounds(schedule.looked_ahead))
        ),
    )


def _part_bounds(reports: int) -> list[int]:
    """The first report of each part of a window, and the end."""
    parts = min(_PARTS, reports)
    return [round(reports * number / parts) for number in range(parts + 1)]


def _expected_error(
    schedule: ReportSchedule, simulated: MadeUpReports, first: int, last: int
) -> ExpectedError:
    error_m = simulated.error_m[:, first:last]
    error_m = error_m[np.isfinite(error_m)]
    from_s = first * schedule.interval_s
    return ExpectedError(
        from_s,
        last * schedule.interval_s,
        schedule.clock(from_s),
        float(error_m.mean()) if len(error_m) else None,
        float(np.quantile(error_m, 0.9)) if len(error_m) else None,
    )


def _people(m: PredictiveMechanism, schedule: ReportSchedule) -> int:
    """How many people are made up. Budgets that are spent by the number soon end."""
    if not spends_by_the_clock(m):
        return PEOPLE
    return max(_FEWEST_PEOPLE, min(PEOPLE, _MOST_STEPS // len(schedule)))


def lasts_share(
    mechanism: PredictiveMechanism, interval_s: float, *, time_zone: str = "UTC"
) -> float | None:
    """The `lasts_share` of a forecast alone, sooner: to try many settings."""
    m, schedule = _schedule(mechanism, interval_s, time_zone, ORDINARY_DAY, 0.0)
    if spends_by_the_clock(m) and schedule.interval_s < _OFTEN_S:
        _, schedule = _schedule(mechanism, _OFTEN_S, time_zone, ORDINARY_DAY, 0.0)
    lasts = schedule.simulate(m, _people(m, schedule)).lasts
    return _share_that_lasts(m, schedule, lasts, interval_s)


def _share_that_lasts(
    m: PredictiveMechanism, schedule: ReportSchedule, lasts: Bools, interval_s: float
) -> float | None:
    if interval_s == 0.0 and not spends_by_the_clock(m):
        return None
    return None if schedule.cut and lasts.any() else float(np.mean(lasts))


def _schedule(
    mechanism: PredictiveMechanism,
    interval_s: float,
    time_zone: str,
    day: date,
    first_report_s: float,
) -> tuple[PredictiveMechanism, ReportSchedule]:
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
    return m, ReportSchedule(m, interval_s or _FIX_S, ZoneInfo(zone), day, first_report_s)


@dataclass(frozen=True)
class _EveryGuess:
    """In place of a private decision, at its price: every guess that it would test passes, or
    fails."""

    decider: Decision
    passes: bool
    uniforms = 1
    private = False

    def costs(self, eps_test: PerLane, eps_noise: PerLane) -> tuple[PerLane, PerLane]:
        return self.decider.costs(eps_test, eps_noise)

    def decide(self, space: Space, asked: Question, u: Floats) -> tuple[Bools, Floats]:
        tested = np.isfinite(asked.threshold)
        hard = asked.open & np.where(tested, not self.passes, np.less(asked.threshold, 0.0))
        lanes = hard.nonzero()[0]
        if not len(lanes):
            return hard, asked.x[:0]
        eps_noise = take_numbers(asked.eps_noise, lanes)
        noise = space.noise(take_rows(asked.x, lanes), eps_noise, take_rows(u[:, 1:], lanes))
        return hard, noise
