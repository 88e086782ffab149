"""When what is left of a user's budget is expected to be spent. From public data alone.

The policy, what was spent and when is the user's own. Where they will be is not known, so made-up
people (`hereish.synthetic`) go on from there with the same budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

from hereish import synthetic
from hereish._made_up_days import report_together, spends_by_the_clock
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.pacing import Paced
from hereish.core.randomness import SeededDraws
from hereish.core.run import Run
from hereish.core.step import in_window
from hereish.core.types import Floats, Ints
from hereish.core.windows import NoReset
from hereish.gateway.ledger.policy import Policy
from hereish.gateway.ledger.user_state import UserState

PEOPLE = 60
_SEED = 2  # of the made-up people and of their noise; nobody's secret
_MOST_REPORTS = 480  # looked ahead: ten days of a report every half hour
_CHUNK = 48  # reports between two looks at whether anybody has budget left
_ASKED_AGAIN_S = 300.0  # whoever asks often gets one answer for so long


@dataclass(frozen=True)
class RestForecast:
    """When the budget of the present window is expected to be spent. Public.

    An end that is None does not come before the window is over, or within what was looked at.
    """

    window_ends_s: float | None  # None: it does not end
    looked_until_s: float  # the end of the window, or sooner where reports are many
    lasts_share: float | None
    """Of the made-up days, those on which it lasts; None if that was not looked at to the end."""
    ends_early_s: float | None  # one day in ten ends sooner
    ends_typical_s: float | None  # half of the days do
    ends_late_s: float | None  # one day in ten lasts longer


def forecast_rest(state: UserState, now_s: float) -> RestForecast | None:
    """What to expect of the present window; None if nothing is left of it.

    A report is expected once per interval. A manager that paces, and was not asked for an accuracy
    or a number of reports, never takes all that is left: then no day has to be made up.
    """
    if state.budget_at(now_s).exhausted:
        return None
    policy = state.policy
    m, settings = policy.mechanism, policy.settings
    ends_s = None
    if not isinstance(m.window, NoReset):
        ends_s = float(m.window.end_s(np.array([now_s]))[0])  # type: ignore[attr-defined]  # a Day or Every
    if _never_ends(m):
        return RestForecast(ends_s, math.inf if ends_s is None else ends_s, 1.0, None, None, None)
    last = state.newest
    first_s = math.floor(now_s / _ASKED_AGAIN_S) * _ASKED_AGAIN_S
    accuracy_m = None
    if last is not None:
        first_s = max(first_s, last.at_s + settings.interval_s)
        accuracy_m = last.accuracy_m
    run = in_window(m, state.session.run, np.array([now_s]))
    budget = state.budget_at(now_s)
    run = run._replace(spent=run.spent + budget.by_jobs)
    if budget.limits and run.at_s[0] == run.at_s[0]:
        run = run._replace(limit_spent=np.array([[limit.spent for limit in budget.limits]]))
    return _simulate(settings, _Standing.of(run, accuracy_m), first_s, ends_s)


def _never_ends(m: PredictiveMechanism) -> bool:
    budget = m.budget
    return isinstance(budget, Paced) and budget.reports is None and budget.least_eps_noise == 0.0


@dataclass(frozen=True)
class _Standing:
    """What a run has spent and when, without its places; None stands for NaN."""

    released_s: float | None
    hard: bool
    hard_at_s: float | None
    tested_at_s: float | None
    hard_threshold: float
    reports: int
    easy: int
    spent: float
    window: int
    limit_bucket: tuple[int, ...]
    limit_spent: tuple[float, ...]
    limit_older: tuple[float, ...]
    accuracy_m: float | None

    @classmethod
    def of(cls, run: Run, accuracy_m: float | None) -> _Standing:
        times = (float(field[0]) for field in (run.at_s, run.hard_at_s, run.tested_at_s))
        released_s, hard_at_s, tested_at_s = (None if t != t else t for t in times)
        return cls(
            released_s=released_s,
            hard=bool(run.hards[0, 0]),
            hard_at_s=hard_at_s,
            tested_at_s=tested_at_s,
            hard_threshold=float(run.hard_threshold[0]),
            reports=int(run.reports[0]),
            easy=int(run.easy[0]),
            spent=float(run.spent[0]),
            window=int(run.window[0]),
            limit_bucket=tuple(run.limit_bucket[0].tolist()),
            limit_spent=tuple(run.limit_spent[0].tolist()),
            limit_older=tuple(run.limit_older[0].tolist()),
            accuracy_m=accuracy_m,
        )

    def run(self, m: PredictiveMechanism, values: Floats) -> Run:
        """The same of as many people, who were last released at these places."""
        people = len(values)

        def numbers(number: float | None) -> Floats:
            return np.full(people, math.nan if number is None else number)

        def counts(count: int) -> Ints:
            return np.full(people, count, dtype=np.int64)

        run = m.run(people)._replace(
            reports=counts(self.reports),
            easy=counts(self.easy),
            spent=numbers(self.spent),
            window=counts(self.window),
            hard_at_s=numbers(self.hard_at_s),
            hard_threshold=numbers(self.hard_threshold),
            tested_at_s=numbers(self.tested_at_s),
            limit_bucket=np.tile(np.array(self.limit_bucket, dtype=np.int64), (people, 1)),
            limit_spent=np.tile(np.array(self.limit_spent), (people, 1)),
            limit_older=np.tile(np.array(self.limit_older), (people, 1)),
        )
        if self.released_s is None:
            return run
        hards = np.full((people, 1), self.hard)
        return run._replace(
            values=values[:, None], times_s=numbers(self.released_s)[:, None], hards=hards
        )


@lru_cache(maxsize=256)
def _simulate(
    settings: Policy, standing: _Standing, first_s: float, ends_s: float | None
) -> RestForecast:
    """Cached: a page that is looked at asks every half minute."""
    m = settings.build(on_exhausted="stop")  # the budget ends when it does, whatever follows
    every_s = settings.expected_every_s
    reports = _MOST_REPORTS
    if ends_s is not None:
        if spends_by_the_clock(m):  # then fewer reports cost as much
            every_s = max(every_s, (ends_s - first_s) / _MOST_REPORTS)
        reports = min(reports, max(0, math.ceil((ends_s - first_s) / every_s)))
    until_s = min(first_s + reports * every_s, math.inf if ends_s is None else ends_s)
    at_s: Floats = first_s + every_s * np.arange(reports, dtype=np.float64)
    zone = ZoneInfo(settings.time_zone)
    before_s = first_s if standing.released_s is None else standing.released_s
    # All at once, so that everybody is one person throughout.
    clock_s = _clock_s(zone, np.concatenate([[before_s], at_s]))
    places = synthetic.whereabouts(PEOPLE, _SEED, clock_s)
    draws = SeededDraws(_SEED)
    run = standing.run(m, _released_at(m, standing, places[:, 0], draws))
    made = np.zeros(PEOPLE, dtype=np.int64)
    for first in range(0, reports, _CHUNK):
        chunk_s = at_s[first : first + _CHUNK]
        x = places[:, 1 + first : 1 + first + len(chunk_s)]
        out, run = report_together(m, x, chunk_s, draws, run)
        released = out.released.reshape(PEOPLE, -1)
        made += released.sum(axis=1)
        if not released[:, -1].any():
            break  # nobody has any left
    lasts = made == reports
    order = np.argsort(np.where(lasts, reports, made), kind="stable")

    def end(part: float) -> float | None:
        which = order[math.floor(part * (PEOPLE - 1))]
        return None if lasts[which] else float(at_s[made[which]])

    share = None if until_s != ends_s and lasts.any() else float(np.mean(lasts))
    return RestForecast(ends_s, until_s, share, end(0.1), end(0.5), end(0.9))


def _released_at(
    m: PredictiveMechanism, standing: _Standing, x: Floats, draws: SeededDraws
) -> Floats:
    """Where each of them was last released: about as far off as the user may be."""
    space = m.space
    if standing.accuracy_m is None:
        return space.snap(x)
    u = draws.uniforms(len(x) * space.uniforms).reshape(len(x), -1)
    return space.noise(x, space.c_noise(0.9) / standing.accuracy_m, u)


def _clock_s(zone: ZoneInfo, at_s: Floats) -> Floats:
    """Seconds of the local clock since midnight."""
    local = [datetime.fromtimestamp(moment, zone) for moment in at_s]
    return np.array([t.hour * 3600.0 + t.minute * 60.0 + t.second for t in local])
