"""Cabspotting as published: one file per cab, lines `lat lon occupied unixtime`, newest first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hereish.errors import PointError
from hereish.evaluation.dataset import Trajectories

_NAMES = "new_*.txt"


def find_files(name: str) -> list[Path]:
    """The files of the cabs, if this is a folder of them."""
    folder = Path(name)
    return sorted(folder.rglob(_NAMES)) if folder.is_dir() else []


def load(paths: list[Path]) -> Trajectories:
    """One trajectory per cab. Lines that cannot be read are left out."""
    tables = [_table(path) for path in paths]
    lengths = [len(table) for table in tables]
    rows = np.concatenate(tables)
    if not len(rows):
        raise PointError("found no usable point")
    kept = [i for i, length in enumerate(lengths) if length]
    return Trajectories(
        "cabspotting",
        rows[:, 2],
        np.ascontiguousarray(rows[:, :2]),
        np.r_[0, np.cumsum([lengths[i] for i in kept])],
        np.arange(len(kept)),
        len(kept),
    )


def _table(path: Path) -> np.typing.NDArray[np.float64]:
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            lat, lon, _, at_s = map(float, line.split())
        except ValueError:
            continue
        if abs(lat) <= 90.0 and abs(lon) <= 180.0 and abs(at_s) < 1e10:
            rows.append((lat, lon, at_s))
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return table[np.unique(table[:, 2], return_index=True)[1]]  # by time, each once
