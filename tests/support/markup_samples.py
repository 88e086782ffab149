"""Small files of GPX and GeoJSON, and what the tests of both ask of them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hereish.errors import HereishError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import Fault, UnreadableFileError
from hereish.traces.formats.base import Source
from hereish.traces.formats.registry import get_format
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import Ids, ReleasedRows, RowBatch

MAY_1_US = 1_714_550_400_000_000  # 08:00 in UTC
DAY_US = 86_400_000_000

# The digits of these places are nowhere else, so that a search for them finds every leak.
LATS = (48.7361901, 48.7361902, -12.7361903)
LONS = (11.5824701, 11.5824702, -77.5824703)
SECRET_DIGITS = ("73619", "58247")

GUARANTEE = GuaranteeMetadata(
    'Nobody can tell < 100 m & "more".', True, 0.023, "day", "Europe/Berlin"
)

GPX = f"""<?xml version="1.0" encoding="UTF-8"?>
<gpx version="1.1" creator="phone" xmlns="http://www.topografix.com/GPX/1/1"
  xmlns:x="http://www.garmin.com/xmlschemas/TrackPointExtension/v1">
<metadata><name>My house</name><bounds minlat="1" minlon="2" maxlat="3" maxlon="4"/></metadata>
<wpt lat="1.5" lon="2.5"><time>2024-05-01T07:00:00Z</time></wpt>
<rte><rtept lat="3.5" lon="4.5"><time>2024-05-01T07:00:00Z</time></rtept></rte>
<trk><name>Home to work</name><trkseg>
<trkpt lat="{LATS[0]}" lon="{LONS[0]}"><ele>411.5</ele><time>2024-05-01T08:00:00Z</time>
  <extensions><x:TrackPointExtension><x:hr>61</x:hr></x:TrackPointExtension></extensions></trkpt>
</trkseg><trkseg>
<trkpt lat="{LATS[1]}" lon="{LONS[1]}"><time>2024-05-01T08:00:01.5Z</time></trkpt>
</trkseg></trk>
<trk><trkseg>
<trkpt lat="{LATS[2]}" lon="{LONS[2]}"><time>2024-05-02T08:00:00Z</time></trkpt>
</trkseg></trk>
</gpx>
"""


def point(i: int, **properties: Any) -> dict[str, Any]:
    """A feature at the i-th of the places."""
    position = [LONS[i], LATS[i], 411.5]
    return feature({"type": "Point", "coordinates": position}, properties)


def feature(geometry: Any, properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def line(*places: int, **properties: Any) -> dict[str, Any]:
    positions = [[LONS[i], LATS[i]] for i in places]
    return feature({"type": "LineString", "coordinates": positions}, properties)


def collection(*features: Any, **members: Any) -> str:
    return json.dumps({"type": "FeatureCollection", "features": features, **members}, indent=1)


POINTS = collection(
    point(0, user="ann", time="2024-05-01T08:00:00Z", speed=1.5, name="home"),
    point(1, user="ann", time="2024-05-01T08:00:01.5Z", speed=None),
    point(2, user=7, time="2024-05-02T08:00:00Z"),
)
LINES = collection(
    line(0, 1, coordTimes=["2024-05-01T08:00:00Z", "2024-05-01T08:00:01.5Z"], name="to work"),
    line(2, times=["2024-05-02T08:00:00Z"]),
)


def source(folder: Path, name: str, content: str | bytes) -> Source:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    form = "gpx" if "gpx" in name else "geojson"
    return Source(path, get_format(form), Path(name))


def batches(source: Source, columns: Columns | None = None) -> list[RowBatch]:
    return list(source.format.read(source, columns or Columns()))


def read(source: Source, columns: Columns | None = None) -> RowBatch:
    """A file that is one batch."""
    (batch,) = batches(source, columns)
    return batch


def read_until_broken(
    source: Source, columns: Columns | None = None
) -> tuple[list[RowBatch], HereishError | None]:
    """What came before an error, and the error, which tells nothing."""
    found: list[RowBatch] = []
    problem: HereishError | None = None
    try:
        found.extend(source.format.read(source, columns or Columns()))
    except HereishError as error:
        problem = error
    if problem is not None:
        check_silent(problem)
    for batch in found:
        check_batch(batch)
    return found, problem


def check_silent(error: BaseException) -> None:
    """No place is in the error, nor in those it was raised from."""
    seen: BaseException | None = error
    while seen is not None:
        told = f"{seen} {seen!r} {seen.args!r} {vars(seen)!r}"
        assert not any(digits in told for digits in SECRET_DIGITS)
        seen = seen.__cause__ or seen.__context__


def check_batch(batch: RowBatch) -> None:
    """All columns are of one length and of the types that were agreed."""
    rows = len(batch)
    assert rows > 0
    columns: list[Any] = [
        batch.line,
        batch.at_us,
        batch.lat,
        batch.lon,
        batch.fault,
        *batch.kept.values(),
    ]
    assert all(column.shape == (rows,) for column in columns)
    assert batch.line.dtype == batch.at_us.dtype == np.int64
    assert batch.lat.dtype == batch.lon.dtype == np.float64
    assert batch.fault.dtype == np.uint8
    assert set(batch.fault.tolist()) <= set(Fault)
    good = batch.fault == Fault.NONE
    assert np.isfinite(batch.lat[good]).all()
    assert np.isfinite(batch.lon[good]).all()
    assert (batch.line > 0).all()
    assert 0 <= batch.done <= 1
    for ids in (batch.user, batch.trace):
        if ids is not None:
            assert ids.codes.shape == (rows,)
            assert len(set(ids.names)) == len(ids.names)
            assert all(type(name) in (str, int) for name in ids.names)
            assert len(ids.values()) == rows
    assert "RowBatch of" in repr(batch)


def unreadable(source: Source, columns: Columns | None = None) -> tuple[str, int | None]:
    """What is wrong with a file of which nothing can be read."""
    found, problem = read_until_broken(source, columns)
    assert found == []
    assert isinstance(problem, UnreadableFileError)
    return problem.reason, problem.line


def faults(batch: RowBatch) -> list[Fault]:
    return [Fault(fault) for fault in batch.fault.tolist()]


def released(
    at_us: Sequence[int],
    lat: Sequence[float],
    lon: Sequence[float],
    user: Sequence[str | int] | None = None,
    trace: Sequence[str | int] | None = None,
    kept: Mapping[str, np.typing.NDArray[Any]] | None = None,
) -> ReleasedRows:
    rows = len(at_us)
    return ReleasedRows(
        at_us=np.array(at_us, dtype=np.int64),
        lat=np.array(lat, dtype=np.float64),
        lon=np.array(lon, dtype=np.float64),
        kind=(np.arange(rows) % 3).astype(np.uint8),
        cost=np.arange(rows, dtype=np.float64) * 1e-7,
        user=None if user is None else Ids.of(user),
        trace=None if trace is None else Ids.of(trace),
        kept=kept or {},
    )


def written(form: str, *rows: ReleasedRows, layout: Layout | None = None) -> bytes:
    """A file of these rows."""
    file = io.BytesIO()
    open_writer = get_format(form).open_writer
    assert open_writer is not None
    writer = open_writer(file, layout or Layout(), GUARANTEE)
    for part in rows:
        writer.write(part)
    writer.finish()
    assert not file.closed
    return file.getvalue()
