"""Trajectories from files: which of them take part, and where somebody moves slowly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError, PointError
from hereish.synthetic import MIDNIGHT_S, day, whereabouts_on_days
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_inputs
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.formats.base import Source
from hereish.traces.names import canonical_name
from hereish.traces.reading import Progress, read_valid_rows
from hereish.traces.table import Ids, RowBatch
from hereish.traces.time_order import TimeOrderChecker
from hereish.traces.validate import Validator

# Section 6 of the contract: what counts as a trajectory of somebody on foot, at least at times.
LEAST_POINTS, LEAST_S, LEAST_SLOW = 20, 20 * 60.0, 0.1
SLOW_KMH = 15.0
_DAY_S = 86400.0
TRAIN_SHARE = 0.5  # of the users, to tune on
SILENT_S = 600.0  # with `gaps`, a trajectory ends where the logger recorded nothing for so long
_MOST_UNORDERED = 0.1  # the share of points that is left out for its order without a word


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Fixes laid end to end, trajectory by trajectory, in the order of their times."""

    name: str  # of the data set
    at_s: Floats
    points: Floats  # (n, 2) latitude and longitude
    offsets: Ints  # (k + 1,)
    user: Ints  # (k,) whose each trajectory is
    users: int

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self.at_s)} fixes in {len(self)} trajectories>"

    def take(self, which: Ints | Bools) -> Trajectories:
        """These trajectories only, with the same numbers for users."""
        chosen = np.arange(len(self))[which]
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.r_[0, np.cumsum(lengths)]
        rows = np.repeat(self.offsets[:-1][chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Trajectories(
            self.name,
            self.at_s[rows],
            self.points[rows],
            offsets,
            self.user[chosen],
            self.users,
        )


def load(
    names: Sequence[str],
    columns: Columns | None = None,
    form: str | None = None,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Trajectories:
    """Trajectories of files, folders or globs; what cannot be used is left out.

    Without traces in the files, all fixes of a user are one trajectory.
    """
    found = find_inputs(names, form, columns)
    builder = _Builder()
    validator = Validator(drop_bad=True)
    checkers: dict[Source, TimeOrderChecker] = defaultdict(TimeOrderChecker)
    rows = read_valid_rows(
        found.sources,
        columns or Columns(),
        validator,
        unreadable=found.unreadable,
        jobs=jobs,
        progress=progress,
    )
    for source, batch in rows:
        faults = checkers[source].faults(batch)
        builder.add(validator.without_faults(source, batch, faults), source.name)
    if not validator.points:
        validator.check_losses()
    unordered = validator.dropped.get(FAULT_REASONS[Fault.ORDER], 0)
    if unordered > _MOST_UNORDERED * validator.points:
        raise PointError(
            f"{unordered:,} of {validator.points:,} points are out of order, and would be "
            "left out: sort by user and time"
        )
    name = Path(names[0]).name.split(".")[0] or "data"
    return builder.build(name)


def synthetic(users: int = 600, seed: int = 1) -> Trajectories:
    """The made-up city, with a fix every two minutes or so, for those who have no data."""
    made = day(users, seed, points_each=400)
    return Trajectories("synthetic", made.at_s, made.points, made.offsets, np.arange(users), users)


def synthetic_days(users: int = 100, days: int = 14, seed: int = 1) -> Trajectories:
    """The made-up city for two weeks, a fix every five minutes and a trajectory per day."""
    clock_s = np.arange(0.0, _DAY_S, 300.0)
    points = whereabouts_on_days(users, seed, days, clock_s).reshape(-1, 2)
    at_s = MIDNIGHT_S + (_DAY_S * np.arange(days)[:, None] + clock_s).reshape(-1)
    offsets = len(clock_s) * np.arange(users * days + 1)
    whose = np.repeat(np.arange(users), days)
    return Trajectories("synthetic", np.tile(at_s, users), points, offsets, whose, users)


class _Builder:
    """Puts trajectories together from batches of files."""

    def __init__(self) -> None:
        self._users: dict[str, int] = {}
        self._traces: dict[tuple[int, tuple[str, object]], int] = {}
        self._whose: list[int] = []
        self._columns: list[tuple[Ints, Floats, Floats, Floats]] = []

    def add(self, batch: RowBatch, file: str) -> None:
        if not len(batch):
            return
        nothing = np.zeros(len(batch), dtype=np.int64)
        users, traces = batch.user or Ids(nothing, [""]), batch.trace or Ids(nothing, [""])
        numbered = batch.layout.numbered
        pair = users.codes * len(traces.names) + traces.codes
        begins = np.flatnonzero(np.diff(pair, prepend=pair[:1] - 1))
        numbers = [
            self._number(
                canonical_name(users.names[u]),
                (file if numbered and isinstance(traces.names[t], int) else "", traces.names[t]),
            )
            for u, t in (divmod(one, len(traces.names)) for one in pair[begins].tolist())
        ]
        trace = np.repeat(numbers, np.diff(begins, append=len(pair)))
        self._columns.append((trace, batch.at_us / 1e6, batch.lat, batch.lon))

    def _number(self, user: str, trace: tuple[str, object]) -> int:
        who = self._users.setdefault(user, len(self._users))
        number = self._traces.setdefault((who, trace), len(self._traces))
        if number == len(self._whose):
            self._whose.append(who)
        return number

    def build(self, name: str) -> Trajectories:
        if not self._columns:
            raise PointError("found no usable point")
        trace, at_s, lat, lon = (np.concatenate(part) for part in zip(*self._columns, strict=True))
        order = np.lexsort((at_s, trace))
        offsets = np.searchsorted(trace[order], np.arange(len(self._whose) + 1))
        points = np.column_stack([lat[order], lon[order]])
        whose = np.array(self._whose, dtype=np.int64)
        return Trajectories(name, at_s[order], points, offsets, whose, len(self._users))


def cut_at_silence(trajectories: Trajectories, silent_s: float = SILENT_S) -> Trajectories:
    """Each stretch without a silence of the logger as a trajectory of its own."""
    silent = np.diff(trajectories.at_s) > silent_s
    silent[trajectories.offsets[1:-1] - 1] = False  # between trajectories there is none
    offsets = np.union1d(trajectories.offsets, np.flatnonzero(silent) + 1)
    whose = np.searchsorted(trajectories.offsets, offsets[:-1], side="right") - 1
    return Trajectories(
        trajectories.name,
        trajectories.at_s,
        trajectories.points,
        offsets,
        trajectories.user[whose],
        trajectories.users,
    )


def label_slow(trajectories: Trajectories) -> Bools:
    """Whether somebody moves slowly in the interval after each fix; False for the last."""
    apart_m = Sphere().distance(trajectories.points[1:], trajectories.points[:-1])
    apart_s = np.maximum(np.diff(trajectories.at_s), 1e-9)
    label = np.append(apart_m / apart_s * 3.6 < SLOW_KMH, False)
    label[trajectories.offsets[1:] - 1] = False
    return label


def select_on_foot(trajectories: Trajectories) -> tuple[Trajectories, Bools]:
    """The trajectories that take part, and whether each of their fixes is slow."""
    label = label_slow(trajectories)
    points = np.diff(trajectories.offsets)
    lasts_s = (
        trajectories.at_s[trajectories.offsets[1:] - 1]
        - trajectories.at_s[trajectories.offsets[:-1]]
    )
    counts = np.add.reduceat(label, trajectories.offsets[:-1])
    share = counts / np.maximum(points - 1, 1)
    takes_part = (points >= LEAST_POINTS) & (lasts_s >= LEAST_S) & (share >= LEAST_SLOW)
    return trajectories.take(takes_part), label[np.repeat(takes_part, points)]


def split_users(users: int, train_share: float, seed: int) -> Bools:
    """Whether each user is one to tune on; the others are to measure on."""
    if not 0.0 < train_share < 1.0:
        raise ParameterError(f"train_share must lie between 0 and 1, found {train_share!r}")
    first = round(train_share * users)
    if not 0 < first < users:
        raise ParameterError("at least two users are needed: some to tune on, and some to test on")
    training = np.zeros(users, dtype=np.bool_)
    training[np.random.default_rng(seed).permutation(users)[:first]] = True
    return training
