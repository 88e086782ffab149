"""Small files of CSV, as the tests of reading and writing them have them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from hereish.errors import HereishError
from hereish.traces.columns import Columns, Layout
from hereish.traces.formats import delimited
from hereish.traces.formats.base import Source
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import ReleasedRows, RowBatch

GUARANTEE = GuaranteeMetadata("eps for each user and day")
QUICK = settings(derandomize=True, deadline=None, max_examples=200)
HEADER = "user,time,lat,lon\n"
ROW = "anna,2024-05-01T08:00:00Z,60.17,24.94\n"


def read(path: Path, **columns: Any) -> list[RowBatch]:
    return list(delimited.read(Source(path, delimited.FORMAT, Path(path.name)), Columns(**columns)))


def written(folder: Path, content: str | bytes, name: str = "in.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def one(folder: Path, content: str | bytes, **columns: Any) -> RowBatch:
    (batch,) = read(written(folder, content), **columns)
    return batch


def error(folder: Path, content: str | bytes, **columns: Any) -> HereishError:
    with pytest.raises(HereishError) as caught:
        one(folder, content, **columns)
    return caught.value


def released(batch: RowBatch, **changes: Any) -> ReleasedRows:
    count = len(batch)
    fields: dict[str, Any] = {
        "kind": np.zeros(count, dtype=np.uint8),
        "cost": np.full(count, 0.001),
        "user": batch.user,
        "trace": batch.trace,
        "kept": batch.kept,
    }
    return ReleasedRows(batch.at_us, batch.lat, batch.lon, **(fields | changes))


def csv_of(rows: Sequence[ReleasedRows], layout: Layout | None = None) -> bytes:
    file = io.BytesIO()
    writer = delimited.open_writer(file, layout or Layout(), GUARANTEE)
    for some in rows:
        writer.write(some)
    writer.finish()
    assert not file.closed
    return file.getvalue()
