"""Reports of made-up people, for forecasts: when they are made, from where, and what becomes of
them."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from hereish import synthetic
from hereish.core.batch import sanitize
from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.pacing import Paced, Steady
from hereish.core.randomness import SeededDraws
from hereish.core.run import Run
from hereish.core.types import Bools, Floats, Ints
from hereish.core.windows import Day, Every, NoReset

_SEED = 1  # of the made-up people and of the noise in a forecast; nobody's secret
_DAY_S = 86400.0
_MOST_REPORTS = 1500  # looked ahead: a month of a report every half hour
_MOST_WINDOWS = 12  # of one forecast, spread over a day
_CHUNK = 64  # reports between two looks at whether anybody has budget left
_TUESDAY = 1


def spends_by_the_clock(m: PredictiveMechanism) -> bool:
    """Whether tests cost the same per hour, however often somebody reports."""
    budget = m.budget
    return isinstance(budget, Steady) or (isinstance(budget, Paced) and budget.reports is None)


def report_together(
    m: PredictiveMechanism, places: Floats, at_s: Floats, draws: SeededDraws, run: Run
) -> tuple[Sanitized, Run]:
    """What becomes of reports that all people make at the same times; places: (people, n, 2)."""
    people = len(places)
    out = sanitize(
        m,
        places.reshape(-1, 2),
        np.tile(at_s, people),
        len(at_s) * np.arange(people + 1),
        draws=draws,
        run=run,
    )
    return out, run if out.run is None else out.run


class MadeUpReports(NamedTuple):
    """What became of the reports of made-up people, one row per person and window."""

    made: Ints
    """How many reports were made."""
    lasts: Bools
    """Whether the budget lasted for all of them."""
    error_m: Floats
    """(rows, reports) How far each release was off; NaN where there was none."""


class ReportSchedule:
    """The reports of made-up people: when they are made, and from where.

    People whose places are remembered live through days that differ. For all others the day before
    is the same one, since it only leaves a release to guess from.
    """

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
        self._remembers = m.tracker is not None
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
        first = datetime.fromtimestamp(self._at_s[0], zone).date()
        self._tuesday = first - timedelta(days=(first.weekday() - _TUESDAY) % 7)

    def __len__(self) -> int:
        """How many reports each of the people makes, at most."""
        return len(self._at_s)

    def clock(self, after_s: float) -> str | None:
        """The local time so long after the first report, where a window is a day."""
        if not self._daily:
            return None
        return datetime.fromtimestamp(self._start_s + after_s, self.zone).strftime("%H:%M")

    def simulate(self, m: PredictiveMechanism, people: int) -> MadeUpReports:
        """Run the mechanism for so many people."""
        run = m.run(people)
        draws = SeededDraws(_SEED)
        made, lasts, errors = [], [], []
        for number, (begin, end) in enumerate(self._windows):
            # A window that is not counted only leaves a release to guess from.
            if number not in self._counted and number + 1 not in self._counted:
                continue
            reports = np.zeros(people, dtype=np.int64)
            error_m = np.full((people, self.looked_ahead), np.nan)
            due = 0
            for first in range(begin, end, _CHUNK):
                at_s = self._at_s[first : min(first + _CHUNK, end)]
                places = self._places(people, at_s)
                out, run = report_together(m, places, at_s, draws, run)
                released = out.released.reshape(people, -1)
                reports += released.sum(axis=1)
                if number in self._counted:
                    off_m = m.space.distance(places.reshape(-1, 2), out.value)
                    error_m[:, due : due + len(at_s)] = off_m.reshape(people, -1)
                due += len(at_s)
                if not released[:, -1].any():
                    break  # nobody has any left
            if number in self._counted:
                made.append(reports)
                lasts.append(reports == due)
                errors.append(error_m)
        return MadeUpReports(np.concatenate(made), np.concatenate(lasts), np.concatenate(errors))

    def _places(self, people: int, at_s: Floats) -> Floats:
        """(people, n, 2) Where they are, in latitude and longitude."""
        local = [datetime.fromtimestamp(moment, self.zone) for moment in at_s]
        clock_s = np.array([t.hour * 3600.0 + t.minute * 60.0 + t.second for t in local])
        if not self._remembers:
            return synthetic.whereabouts(people, _SEED, clock_s)
        day = np.array([(t.date() - self._tuesday).days for t in local])
        places = synthetic.whereabouts_on_days(people, _SEED, int(day[-1]) + 1, clock_s)
        return places[:, day, np.arange(len(day))]
