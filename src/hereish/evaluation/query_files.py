"""Query traces that somebody has sampled already: trace_id, t, lat, lon, and a user if told."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from hereish.evaluation.dataset import load
from hereish.evaluation.sampling import Queries
from hereish.traces.columns import Columns

_P = re.compile(r"[-_. ]?p=?(0(?:\.\d+)?|1(?:\.0+)?)(?!\d)")


def read(name: str) -> tuple[Queries, float | None]:
    """The traces of a file, and the p that its name tells (sampled-p0.2.csv), if any.

    Without a user column each trace is somebody's of its own.
    """
    columns = Columns(trace="trace_id", time="t", lat="lat", lon="lon")
    found = load([name], columns)
    nobody = found.users == 1
    user = np.arange(len(found)) if nobody else found.user
    users = len(found) if nobody else found.users
    told = _P.search(Path(name).name)
    queries = Queries(found.at_s, found.points, found.offsets, user, users)
    return queries, None if told is None else float(told.group(1))


def dataset(name: str) -> str:
    """What files are called that differ in p alone: sampled, for sampled-p0.2.csv."""
    return _P.sub("", Path(name).name).split(".")[0] or "sampled"
