"""Query traces that somebody has sampled already: trace_id, t, lat, lon, and perhaps a user."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from hereish.evaluation.dataset import load
from hereish.evaluation.sampling import Queries
from hereish.traces.columns import Columns

_P_IN_NAME = re.compile(r"[-_. ]?p=?(0(?:\.\d+)?|1(?:\.0+)?)(?!\d)")


def read(path: str) -> tuple[Queries, float | None]:
    """The traces of a file, and the p in its name (sampled-p0.2.csv), if any.

    Without a user column each trace is a user of its own.
    """
    columns = Columns(trace="trace_id", time="t", lat="lat", lon="lon")
    trajectories = load([path], columns)
    anonymous = trajectories.users == 1
    user = np.arange(len(trajectories)) if anonymous else trajectories.user
    users = len(trajectories) if anonymous else trajectories.users
    match = _P_IN_NAME.search(Path(path).name)
    queries = Queries(trajectories.at_s, trajectories.points, trajectories.offsets, user, users)
    return queries, None if match is None else float(match.group(1))


def dataset_name(path: str) -> str:
    """The file name without its p: sampled, for sampled-p0.2.csv."""
    return _P_IN_NAME.sub("", Path(path).name).split(".")[0] or "sampled"
