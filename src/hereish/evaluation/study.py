"""The grid of the study: every p and configuration, cell by cell, so that none is computed twice.

A cell is one p of one data set. What is finished is kept in the output folder and found again by
everything that decides it: the data, the settings, the seed. Each cell draws from a seed of its
own, so the table is the same in whatever order, and by however many threads, cells are computed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

import hereish
from hereish.errors import ParameterError
from hereish.evaluation.configurations import Configuration, configurations
from hereish.evaluation.dataset import Trajectories, cut_at_silence, select_on_foot
from hereish.evaluation.metrics import StudyMetrics, Sums
from hereish.evaluation.sampling import Queries, sample
from hereish.evaluation.study_settings import StudySettings

Sampling = Literal["authors", "gaps"]
PS = tuple(i / 10 for i in range(11))
QUICK_TRACES = 500
Row = dict[str, Any]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Study:
    """The grid that is computed, for any data set."""

    settings: StudySettings = field(default_factory=StudySettings)
    ps: tuple[float, ...] = PS
    samples: int = 10
    seed: int = 1
    most_traces: int | None = None  # of each data set, drawn by the seed; None for all

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ParameterError(f"samples must be at least 1, found {self.samples}")

    def rng(self, *where: object) -> np.random.Generator:
        """The generator of one place in the study, always the same."""
        return seeded_rng(self.seed, *where)


def seeded_rng(seed: int, *where: object) -> np.random.Generator:
    """The generator of one place in a study, always the same."""
    digest = hashlib.sha256(repr((seed, where)).encode()).digest()
    return np.random.default_rng(list(digest))


@dataclass(frozen=True, eq=False)
class Cell:
    """One p of a data set, and where its query traces come from."""

    dataset: str
    identity: str  # of the data: names, sizes and times of its files
    sampling: str
    p: float | None
    queries: Callable[[np.random.Generator], Queries]

    def key(self, study: Study) -> str:
        """The name of its file: a hash of everything that decides its rows."""
        grid = asdict(study.settings), study.samples, study.seed, study.most_traces
        made_by = hereish.__version__, StudyMetrics._fields
        decisive = (made_by, self.dataset, self.identity, self.sampling, self.p, grid)
        return hashlib.sha256(repr(decisive).encode()).hexdigest()[:24]


def cells(
    study: Study, data: Trajectories, identity: str, samplings: Sequence[Sampling]
) -> Iterator[Cell]:
    """The cells of a data set of trajectories."""
    for sampling in samplings:
        cut = cut_at_silence(data) if sampling == "gaps" else data
        kept, slow = select_on_foot(cut)
        if study.most_traces is not None and len(kept) > study.most_traces:
            rng = study.rng("traces", data.name, sampling)
            chosen = np.zeros(len(kept), dtype=np.bool_)
            chosen[rng.choice(len(kept), study.most_traces, replace=False)] = True
            slow = slow[np.repeat(chosen, np.diff(kept.offsets))]
            kept = kept.take(chosen)
        if not len(kept):
            raise ParameterError(
                f"{data.name} has no trajectory of 20 points and 20 minutes with some on foot"
            )
        for p in study.ps:
            yield Cell(data.name, identity, sampling, p, _Sampler(kept, slow, p))


@dataclass(frozen=True, eq=False)
class _Sampler:
    trajectories: Trajectories
    slow: np.typing.NDArray[np.bool_]
    p: float

    def __call__(self, rng: np.random.Generator) -> Queries:
        return sample(self.trajectories, self.slow, self.p, rng)


def cell_of_queries(dataset: str, identity: str, p: float | None, queries: Queries) -> Cell:
    """The cell of query traces that have been sampled already."""
    return Cell(dataset, identity, "given", p, lambda rng: queries)


def run(
    study: Study,
    wanted: Sequence[Cell],
    folder: Path,
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """The rows of all cells, in their order; those in the folder are not computed again."""
    cell_folder = folder / "cells"
    cell_folder.mkdir(parents=True, exist_ok=True)
    tasks = [partial(_load_or_compute, study, cell, cell_folder) for cell in wanted]
    return [row for rows in run_tasks(tasks, jobs, progress) for row in rows]


def run_tasks(
    tasks: Sequence[Callable[[], _T]], jobs: int, progress: Callable[[int, int], None] | None = None
) -> list[_T]:
    """What each task returns, in the order of the tasks; so many are done at a time."""
    done: dict[int, _T] = {}
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(task): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(waiting):
                done[waiting[future]] = future.result()
                if progress is not None:
                    progress(len(done), len(tasks))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return [done[i] for i in range(len(tasks))]


def _load_or_compute(study: Study, cell: Cell, folder: Path) -> list[Row]:
    path = folder / f"{cell.key(study)}.json"
    with contextlib.suppress(OSError, ValueError):  # not there, or damaged
        finished: list[Row] = json.loads(path.read_text(encoding="utf-8"))
        return finished
    rows = compute(study, cell)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(rows), encoding="utf-8")
    part.replace(path)
    return rows


def compute(study: Study, cell: Cell) -> list[Row]:
    """The rows of one cell: one row per configuration, over all samples."""
    compared = configurations(study.settings)
    sums: list[Sums] = []
    for number in range(study.samples):
        where = (cell.dataset, cell.sampling, cell.p, number)
        queries = cell.queries(study.rng("sample", *where))
        sums = sums or [Sums.zero(queries.users) for _ in compared]
        for configuration, total in zip(compared, sums, strict=True):
            seed = int(study.rng("noise", *where, configuration.name).integers(2**62))
            total.add(queries, configuration.run(queries, seed), study.settings.privacy.eps_per_m)
    return [
        _make_row(study, cell, configuration, total)
        for configuration, total in zip(compared, sums, strict=True)
    ]


def _make_row(study: Study, cell: Cell, configuration: Configuration, sums: Sums) -> Row:
    row: Row = {
        "dataset": cell.dataset,
        "p": cell.p,
        "mechanism": configuration.mechanism,
        "manager": configuration.manager,
        "skip": configuration.skip,
        "sampling": cell.sampling,
        "private": configuration.private,
        "as_published": study.settings.as_published,
        "samples": study.samples,
        "users": int(np.count_nonzero(sums.traces)),
        "traces": int(sums.traces.sum()),
        "reports": int(sums.reports.sum()),
    }
    if not row["traces"]:  # at this p nobody asks often enough
        names = [f"{name}{end}" for name in StudyMetrics._fields for end in ("", "_lo", "_hi")]
        return row | dict.fromkeys(names)
    rng = study.rng("bootstrap", cell.dataset, cell.sampling, cell.p, configuration.name)
    low, high = sums.interval(rng)
    for name, value, lo, hi in zip(StudyMetrics._fields, sums.metrics(), low, high, strict=True):
        row |= {name: value, f"{name}_lo": lo, f"{name}_hi": hi}
    if not sums.cost.any():  # nothing private was done, so there is no budget to speak of
        of_budget = ("rate", "rate_pooled", "test_share")
        row |= {f"{name}{end}": None for name in of_budget for end in ("", "_lo", "_hi")}
    return row


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Write the table to a file, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = path.with_name(f".{path.name}.part")
    pq.write_table(pa.Table.from_pylist(list(rows)), part)
    part.replace(path)
