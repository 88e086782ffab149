"""Plain points, which are read many at once, are read as the XML parser reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.errors import HereishError
from hereish.traces.columns import Columns
from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats import _gpx_points, gpx
from hereish.traces.formats.base import Source
from hereish.traces.table import Ids

HEAD = '<gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1">'
TIME = "<time>2024-05-01T08:00:0%dZ</time>"
POINTS = [
    '<trkpt lat="60.1" lon="24.9"><ele>3.5</ele>' + TIME % 1 + "</trkpt>",
    '<trkpt lat="60.2" lon="24.8">' + TIME % 2 + "<hdop>1</hdop>" + TIME % 3 + "</trkpt>\n",
    '<trkpt lat="60.3" lon="24.7">\n  <name>a\nb</name>\r\n' + TIME % 4 + "\n</trkpt>\n\n",
    '<trkpt lat="60.4" lon="24.6"></trkpt>',
    '<trkpt lat="60.5" lon="24.5"/>',
    '<trkpt lon="24.4" lat="60.6">' + TIME % 5 + "</trkpt>",
    '<trkpt lat="60.7" lon="24.3"><name>&lt;é</name>' + TIME % 6 + "</trkpt>",
    '<trkpt lat="60.8" lon="24.2"><extensions><time>no</time></extensions>' + TIME % 7 + "</trkpt>",
    '<trkpt lat="x" lon="24.1"><time/></trkpt>',
    '<trkpt lat="60.9" lon="24.0"><ele>5 --></ele>' + TIME % 8 + "</trkpt>",
    '<trkpt lat="61.0" lon="23.9"><time>\r\n\t2024-05-01T08:00:09Z\n</time></trkpt>',
]
BETWEEN = [
    "",
    "\n",
    "</trkseg><trkseg>",
    "</trkseg></trk>\n<trk><name>b</name><trkseg>",
    "<!-- ",
    " -->",
    "<![CDATA[",
    "]]>",
    "text",
    "<extensions>",
    "</extensions>",
    '<trkpt hereish-points="0"/>',
]


def read(path: Path) -> Any:
    """All that is read, or what was raised."""
    found: list[Any] = []
    try:
        for batch in gpx.read(Source(path, gpx.FORMAT, Path(path.name)), Columns()):
            trace = batch.trace
            columns = (batch.line, batch.at_us, batch.lat, batch.lon, batch.fault)
            found.append([repr(column.tolist()) for column in columns])
            # Tracks that begin at one time are numbered at random.
            found.append(None if trace is None else Ids.of(trace.values()).codes.tolist())
    except (HereishError, UnreadableFileError) as error:
        found.append((type(error), str(error), vars(error)))
    return found


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.lists(st.sampled_from([*POINTS, *BETWEEN]), max_size=12), st.sampled_from([1 << 16, 50]))
def test_a_file_is_read_as_without_them(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], block: int
) -> None:
    path = tmp_path_factory.mktemp("gpx") / "in.gpx"
    path.write_text(f"{HEAD}\n<trk><trkseg>\n{''.join(parts)}</trkseg></trk></gpx>", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpx, "BLOCK_BYTES", block)
        ours = read(path)
        patch.setattr(_gpx_points.PlainPoints, "without_points", lambda _, block: block)
        assert ours == read(path)


def test_plain_points_are_taken_out(tmp_path: Path) -> None:
    plain = _gpx_points.PlainPoints()
    text = f"{HEAD}<trk><trkseg>{''.join(POINTS[:4] * 5)}</trkseg></trk></gpx>"
    left = plain.without_points(text.encode())
    assert left.count(b"<trkpt") == 1
    assert left.count(b"\n") == text.count("\n")
    assert len(plain.take("0")) == 20
    assert plain.take("0") == []
    assert _gpx_points.PlainPoints().without_points(text.encode("utf-16")) == text.encode("utf-16")
