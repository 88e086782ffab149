"""The leaderboard: every mechanism tuned on some users, and scored on the others.

What is done is kept in the folder, a file per mechanism and situation, and not done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

import hereish
from hereish.core.remap import PriorRemap
from hereish.core.types import Bools
from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.evaluation import contenders
from hereish.evaluation.contenders import Contender
from hereish.evaluation.dataset import TRAIN_SHARE, Trajectories, split_users
from hereish.evaluation.sampling import Queries
from hereish.evaluation.search import Found, Search
from hereish.evaluation.situations import LeastRate, Limits, QueryTraces, WholeDays
from hereish.evaluation.study import Row, run_tasks
from hereish.evaluation.study_settings import StudySettings
from hereish.priors import prior_from_points

CASES = (
    *(("authors", p) for p in (0.0, 0.2, 0.5, 1.0)),
    *(("gaps", p) for p in (0.0, 0.2, 0.5)),
)
QUICK_CASES = (("authors", 0.5), ("authors", 1.0))
EVERY_S = 1800.0
# The noises of a curve, as multiples of the one that was found for the training users.
_NOISES = (0.5, 0.7, 0.85, 1.0, 1.15, 1.4, 1.9)
_MOST_POINTS = 200_000  # of the training users, for the prior
_DAY_S = 86400.0


@dataclass(frozen=True)
class Leaderboard:
    """What is run: for which promise and limits, and how thoroughly."""

    settings: StudySettings = field(default_factory=StudySettings)
    cases: tuple[tuple[str, float], ...] = CASES
    every_s: float = EVERY_S
    trials: int = 40
    train_share: float = TRAIN_SHARE
    held_out_samples: int = 3
    seed: int = 1

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise ParameterError(f"trials must be at least 1, found {self.trials}")


def run(
    board: Leaderboard,
    data: Trajectories,
    identity: str,
    time_zone: str,
    folder: Path,
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """A row per situation and mechanism; those of traces with a curve over the noise."""
    training = split_users(data.users, board.train_share, board.seed)
    remap = _remap_of(data, training, board.seed)
    cells = folder / "leaderboard-cells"
    cells.mkdir(parents=True, exist_ok=True)
    privacy, window = board.settings.privacy, Day(time_zone)
    reports = max(2, round(_DAY_S / board.every_s))
    tasks: list[Callable[[], Row]] = []

    def add(one: Contender, where: Row, compute: Callable[[], Row]) -> None:
        names = {"mechanism": one.name, "in_order": one.in_order, "private": one.private}
        path = cells / f"{_key(board, identity, one, where)}.json"
        row = {"dataset": data.name} | where | names
        tasks.append(partial(_load_or_compute, path, row, compute))

    for sampling, p in board.cases:
        for one in contenders.on_traces(privacy, remap):
            sample = partial(
                QueryTraces.sampled,
                data,
                training,
                p,
                gaps=sampling == "gaps",
                in_order=one.in_order,
                seed=board.seed,
                held_out_samples=board.held_out_samples,
            )
            where = {"sampling": sampling, "p": p, "every_s": None}
            add(one, where, partial(_traces_row, board, one, sample))
    for one in contenders.on_days(privacy, remap, board.every_s, window, reports):
        days = partial(WholeDays.of, data, training, time_zone, board.every_s)
        where = {"sampling": "days", "p": None, "every_s": board.every_s}
        add(one, where, partial(_days_row, board, one, days))
    return run_tasks(tasks, jobs, progress)


def _remap_of(data: Trajectories, training: Bools, seed: int) -> PriorRemap:
    """By a prior of the training users' points alone."""
    seen = np.flatnonzero(np.repeat(training[data.user], np.diff(data.offsets)))
    if len(seen) > _MOST_POINTS:
        seen = np.sort(np.random.default_rng(seed).choice(seen, _MOST_POINTS, replace=False))
    return PriorRemap(prior_from_points(data.points[seen], name=f"training users of {data.name}"))


def _key(board: Leaderboard, identity: str, one: Contender, where: Row) -> str:
    """The name of a cell's file: a hash of everything that decides its row."""
    numbers = asdict(board.settings), board.trials, board.train_share, board.seed
    made_of = one.name, one.ranges, one.start, one.in_order, board.held_out_samples
    decisive = (hereish.__version__, identity, where, numbers, made_of)
    return hashlib.sha256(repr(decisive).encode()).hexdigest()[:24]


def _load_or_compute(path: Path, names: Row, compute: Callable[[], Row]) -> Row:
    with contextlib.suppress(OSError, ValueError):  # not there, or damaged
        finished: Row = json.loads(path.read_text(encoding="utf-8"))
        return finished
    row = names | compute()
    part = path.with_suffix(".part")
    part.write_text(json.dumps(row), encoding="utf-8")
    part.replace(path)
    return row


def _traces_row(
    board: Leaderboard,
    one: Contender,
    sample: Callable[[], tuple[list[Queries], list[Queries]]],
) -> Row:
    limits = Limits.of_accuracy(board.settings.accuracy_m)
    situation = LeastRate(one.name, board.settings.privacy, *sample(), one.in_order, limits=limits)
    found = Search(one.make, [situation], one.ranges, one.start, board.seed).run(board.trials).best
    noise_m = found.fitted[0].accuracy_m
    if noise_m is None:  # not even the finest noise that fits is fine enough
        return {"accuracy_m": None, "numbers": found.values, "curve": []}
    measured = situation.measure(one.make(found.values, noise_m), board.seed)
    curve = _curve(situation, one, found, noise_m, board)
    at = _at_limits(curve, limits)
    return {"accuracy_m": noise_m, "numbers": found.values, **measured, **at, "curve": curve}


def _curve(
    situation: LeastRate, one: Contender, found: Found, noise_m: float, board: Leaderboard
) -> list[Row]:
    """Rate and error of held-out users over the noise, with one set of numbers."""
    points = []
    for factor in _NOISES:
        accuracy_m = factor * noise_m
        try:
            m = one.make(found.values, accuracy_m)
        except ParameterError:  # so fine that not even one report fits the budget
            continue
        metrics = situation.sum_up(m, situation.held_out, board.seed + 3_000_000).metrics()
        points.append({"accuracy_m": accuracy_m, **metrics._asdict()})
    return points


def _at_limits(curve: Sequence[Row], limits: Limits) -> Row:
    """The rates where the errors of held-out users just reach the limits; None if they do not."""
    excess = np.array(
        [
            math.log(max(r["error_mean_m"] / limits.mean_m, r["error_p90_m"] / limits.p90_m))
            for r in curve
        ]
    )
    rows: Row = {"rate_at_limits": None, "rate_pooled_at_limits": None}
    order = np.argsort(excess)
    if len(curve) < 2 or not excess.min() <= 0.0 <= excess.max():
        return rows
    for name in ("rate", "rate_pooled"):
        logs = np.log([r[name] for r in curve])
        rows[f"{name}_at_limits"] = math.exp(float(np.interp(0.0, excess[order], logs[order])))
    return rows


def _days_row(board: Leaderboard, one: Contender, select: Callable[[], WholeDays]) -> Row:
    days = select()
    found = Search(one.make, [days], one.ranges, one.start, board.seed).run(board.trials).best
    measured = days.measure(one.make(found.values, None), board.seed)
    known = {name: value if math.isfinite(value) else None for name, value in measured.items()}
    return {"numbers": found.values, **known}
