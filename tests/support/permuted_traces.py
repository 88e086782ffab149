"""Traces in two orders, as frames and as files, and what is released of them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

import hereish
from hereish.traces import merging, pipeline
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows
from hereish.traces.formats import _parquet_reader, _parquet_writer, _text, geojson, gpx

PRIVACY = hereish.Privacy(math.log(10), 100)
# Each report costs the same, so which are released does not depend on noise.
BY_DAY = hereish.independent(PRIVACY, reports=3, window=hereish.Day("UTC"))
BY_TRACE = hereish.independent(PRIVACY, reports=2, window=EachTrace())
ONCE = hereish.independent(PRIVACY, reports=4)
MECHANISMS = st.sampled_from([BY_DAY, BY_TRACE, ONCE])
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
KEY = hereish.KeyedDraws(b"k" * 32)


class Fix(NamedTuple):
    user: str
    trace: str
    minute: int
    lat: float
    lon: float
    note: str

    @property
    def time(self) -> datetime:
        return NOON + timedelta(minutes=self.minute)


NAMES = st.sampled_from(["ann", "bob", "10", "9", "007", "é", "a b"])
PLACES = st.floats(59.0, 61.0)
FIXES = st.lists(
    st.builds(
        Fix,
        user=NAMES,
        trace=st.sampled_from(["x", "y", "2", "10"]),
        minute=st.integers(0, 2000),  # a day and a half
        lat=PLACES,
        lon=PLACES,
        note=st.sampled_from(["a", "b", "c"]),
    ),
    min_size=1,
    max_size=14,
)


DIFFERENT = FIXES.map(lambda fixes: list({fix[:3]: fix for fix in fixes}.values()))


@st.composite
def permuted(draw: st.DrawFn, fixes: st.SearchStrategy[list[Fix]]) -> tuple[list[Fix], list[Fix]]:
    """Rows, and the same in another order."""
    one = draw(fixes)
    return one, draw(st.permutations(one))


def pandas_frame(fixes: Sequence[Fix]) -> Any:
    return pd.DataFrame(
        {
            "user": [fix.user for fix in fixes],
            "time": [fix.time for fix in fixes],
            "lat": [fix.lat for fix in fixes],
            "lon": [fix.lon for fix in fixes],
            "note": [fix.note for fix in fixes],
        }
    )


def write_csv(path: Path, fixes: Sequence[Fix]) -> Path:
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(["user", "trace", "time", "lat", "lon", "note"])
    out.writerows((f.user, f.trace, f.time.isoformat(), f.lat, f.lon, f.note) for f in fixes)
    target = path.with_suffix(".csv")
    target.write_text(text.getvalue(), encoding="utf-8")
    return target


def write_points(path: Path, fixes: Sequence[Fix]) -> Path:
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [f.lon, f.lat]},
            "properties": {
                "user": f.user,
                "trace": f.trace,
                "time": f.time.isoformat(),
                "note": f.note,
            },
        }
        for f in fixes
    ]
    target = path.with_suffix(".geojson")
    target.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return target


def _grouped(fixes: Sequence[Fix]) -> list[list[Fix]]:
    """By user and trace, in the order in which they come."""
    groups: dict[tuple[str, str], list[Fix]] = {}
    for fix in fixes:
        groups.setdefault((fix.user, fix.trace), []).append(fix)
    return list(groups.values())


def write_lines(path: Path, fixes: Sequence[Fix]) -> Path:
    """A line for each trace, without an id: it is numbered."""
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "LineString", "coordinates": [[f.lon, f.lat] for f in group]},
            "properties": {
                "user": group[0].user,
                "coordTimes": [f.time.isoformat() for f in group],
                "note": [f.note for f in group] if len(group) > 1 else group[0].note,
            },
        }
        for group in _grouped(fixes)
    ]
    target = path.with_suffix(".geojson")
    target.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return target


def write_gpx(path: Path, fixes: Sequence[Fix]) -> Path:
    """A track for each trace, without an id: it is numbered."""
    tracks = [
        "<trk><trkseg>"
        + "".join(
            f'<trkpt lat="{f.lat}" lon="{f.lon}"><time>{f.time.isoformat()}</time>'
            f"<note>{f.note}</note></trkpt>"
            for f in group
        )
        + "</trkseg></trk>"
        for group in _grouped(fixes)
    ]
    target = path.with_suffix(".gpx")
    target.write_text(f'<gpx version="1.1">{"".join(tracks)}</gpx>')
    return target


def write_parquet(path: Path, fixes: Sequence[Fix]) -> Path:
    columns = pandas_frame(fixes).assign(trace=[fix.trace for fix in fixes])
    target = path.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pandas(columns), target, row_group_size=3)
    return target


def write_numbers(path: Path, fixes: Sequence[Fix]) -> Path:
    """Users that are whole numbers."""
    numbers = {"ann": 1, "bob": 2, "10": 10, "9": 9, "007": 70, "é": 3, "a b": 4}
    columns = pandas_frame(fixes).assign(
        user=[numbers[fix.user] for fix in fixes], trace=[fix.trace for fix in fixes]
    )
    target = path.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pandas(columns), target)
    return target


INPUTS = {
    "csv": write_csv,
    "points": write_points,
    "lines": write_lines,
    "gpx": write_gpx,
    "parquet": write_parquet,
    "numbers": write_numbers,
}


OUTPUTS = ["out.csv", "out.geojson", "out.gpx", "out.parquet", "out.geoparquet"]


@contextmanager
def small_units(rows: int) -> Iterator[None]:
    """A few rows stand for millions: none of the files fits into memory."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (pipeline, "BATCH_ROWS"),
            (_text, "BATCH_ROWS"),
            (_text, "BLOCK_ROWS"),
            (_parquet_reader, "BATCH_ROWS"),
            (_parquet_writer, "_GROUP_ROWS"),
            (gpx, "ROWS"),
            (geojson, "ROWS"),
            (merging, "BLOCK_ROWS"),
            (merging, "_IN_MEMORY"),
        ):
            patch.setattr(module, name, rows)
        yield


def told(path: Path) -> list[tuple[Any, ...]]:
    """The public columns of an output, in its order."""
    batch = load_rows([str(path)], Columns(keep=("note",)), in_order=False)
    nothing = [None] * len(batch)
    users = nothing if batch.user is None else batch.user.values()
    traces = nothing if batch.trace is None else batch.trace.values()
    notes = batch.kept["note"].tolist()
    return list(zip(users, traces, batch.at_us.tolist(), notes, strict=True))


def structure(path: Path) -> Any:
    """What a file says besides places, kinds and costs: for Parquet also how it is cut."""
    if path.suffix in (".parquet", ".geoparquet"):
        about = pq.ParquetFile(path).metadata
        return [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    return None


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    batch = load_rows([str(path)], Columns(), in_order=False)
    nothing = [None] * len(batch)
    ids = [nothing if own is None else own.values() for own in (batch.user, batch.trace)]
    return list(zip(*ids, batch.at_us.tolist(), strict=True))
