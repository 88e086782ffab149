"""GPX is read: tracks, users, faults, and what is not GPX."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import hereish
from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.faults import Fault, UnreadableFileError
from hereish.traces.files import sanitize_files
from hereish.traces.formats import gpx
from hereish.traces.formats.base import Source
from tests.support.gpx_samples import file, fix, track
from tests.support.markup_samples import (
    DAY_US,
    GPX,
    LATS,
    LONS,
    MAY_1_US,
    batches,
    faults,
    read,
    read_until_broken,
    source,
    unreadable,
)


def test_the_points_of_all_tracks_are_read_and_nothing_else(tmp_path: Path) -> None:
    batch = read(source(tmp_path, "a.gpx", GPX))
    assert faults(batch) == [Fault.NONE] * 3
    assert batch.lat.tolist() == list(LATS)
    assert batch.lon.tolist() == list(LONS)
    assert batch.at_us.tolist() == [MAY_1_US, MAY_1_US + 1_500_000, MAY_1_US + DAY_US]
    assert batch.line.tolist() == [8, 11, 14]
    assert batch.user is None
    assert batch.trace is not None
    assert batch.trace.values() == [1, 1, 2]
    assert batch.layout.numbered
    assert batch.kept == {}
    assert batch.done == 1.0


@pytest.mark.parametrize("space", ['xmlns="http://www.topografix.com/GPX/1/0"', ""])
def test_older_files_and_such_without_a_namespace_are_read(tmp_path: Path, space: str) -> None:
    batch = read(source(tmp_path, "a.gpx", file(track(fix()), space=space)))
    assert batch.lat.tolist() == [1.25]


def test_a_time_on_a_line_of_its_own_is_one(tmp_path: Path) -> None:
    points = fix() + fix(time="\r\n\t2024-05-01T08:00:01.5Z\n")
    batch = read(source(tmp_path, "a.gpx", file(track(points))))
    assert faults(batch) == [Fault.NONE] * 2
    assert batch.at_us.tolist() == [MAY_1_US, MAY_1_US + 1_500_000]


@pytest.mark.parametrize("before", ["\n", " \r\n\t", "\n" * 70_000])
def test_blank_lines_may_stand_before_everything(tmp_path: Path, before: str) -> None:
    batch = read(source(tmp_path, "a.gpx", before + GPX))
    assert faults(batch) == [Fault.NONE] * 3
    if len(before) < 10:
        assert batch.line.tolist() == [line + before.count("\n") for line in (8, 11, 14)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "windows-1252"])
def test_an_encoding_that_is_declared_is_read(tmp_path: Path, encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + file(
        track("<trkpt lat='1' lon='2'><time>2024-05-01T08:00:00Z</time><sym>é</sym></trkpt>")
    )
    batch = read(source(tmp_path, "a.gpx", text.encode(encoding)), Columns(keep=("sym",)))
    assert batch.kept["sym"].tolist() == ["é"]


@pytest.mark.parametrize(
    ("point", "fault"),
    [
        (fix(lat=""), Fault.LAT),
        (fix(lat='lat=""'), Fault.LAT),
        (fix(lat='lat="nan"'), Fault.LAT),
        (fix(lat='lat="inf"'), Fault.LAT),
        (fix(lat='lat="1e999"'), Fault.LAT),
        (fix(lat='lat="1_0"'), Fault.LAT),
        (fix(lat='lat="0x10"'), Fault.LAT),
        (fix(lat='lat="١"'), Fault.LAT),
        (fix(lat='lat="60,17,5"'), Fault.LAT),
        (fix(lon=""), Fault.LON),
        (fix(lon='lon="-Infinity"'), Fault.LON),
        (fix(lon='lon="2 3"'), Fault.LON),
        (fix(time=""), Fault.TIME),
        (fix(time="yesterday"), Fault.TIME),
        (fix(time="2024-05-01T08:00:00"), Fault.ZONE),
        ('<trkpt lat="1" lon="2"/>', Fault.TIME),
        ('<trkpt lat="1" lon="2"><extensions><time>2024-05-01</time></extensions></trkpt>', 3),
        (fix(lat='lat="400"'), Fault.NONE),  # a later stage's
        (fix(lat='lat=" +1.5e1 "'), Fault.NONE),
    ],
)
def test_a_point_that_cannot_be_used_is_marked_and_the_rest_is_read(
    tmp_path: Path, point: str, fault: Fault
) -> None:
    batch = read(source(tmp_path, "a.gpx", file(track(fix() + point + fix()))))
    assert faults(batch) == [Fault.NONE, fault, Fault.NONE]
    assert batch.line.tolist() == [3, 4, 4 + point.count("\n")]


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    point = '<trkpt lat="60,5" lon="-25,25"><time>2025-06-03T08:00:00Z</time></trkpt>'
    path = tmp_path / "in.gpx"
    path.write_text(f"<gpx><trk><trkseg>{point}</trkseg></trk></gpx>")
    (batch,) = gpx.read(Source(path, gpx.FORMAT, path), Columns())
    assert (batch.lat.tolist(), batch.lon.tolist()) == ([60.5], [-25.25])


def test_times_without_a_zone_are_of_the_zone_that_is_given(tmp_path: Path) -> None:
    one = source(tmp_path, "a.gpx", file(track(fix(time="2024-05-01T08:00:00"))))
    assert read(one).at_us.tolist() == [MAY_1_US]
    berlin = Columns(zone=ZoneInfo("Europe/Berlin"))
    assert read(one, berlin).at_us.tolist() == [MAY_1_US - 2 * 3_600_000_000]


def test_only_what_is_kept_is_kept(tmp_path: Path) -> None:
    batch = read(source(tmp_path, "a.gpx", GPX), Columns(keep=("ele", "hr")))
    assert batch.kept["ele"].tolist() == ["411.5", None, None]
    assert batch.kept["hr"].tolist() == ["61", None, None]
    with pytest.raises(ParameterError, match="no 'sat' to keep"):
        read(source(tmp_path, "a.gpx", GPX), Columns(keep=("ele", "sat")))


def test_names_that_are_taken_cannot_be_kept(tmp_path: Path) -> None:
    for keep in (("time",), ("ele", "ele")):
        with pytest.raises(ParameterError, match=keep[0]):
            read(source(tmp_path, "a.gpx", GPX), Columns(keep=keep))


@pytest.mark.parametrize(
    ("content", "why", "line"),
    [
        ("", "empty", None),
        (" \n \n", "empty", None),
        ("lat,lon\n1,2\n", "broken: syntax error", 1),
        ("\n<kml><Document/></kml>", "not GPX", 2),
        (file(track("")), "no track points", None),
        (file("<wpt lat='1' lon='2'/>"), "no track points", None),
        ("<!DOCTYPE gpx>" + file(track(fix())), "document type", 1),
        ('<!DOCTYPE g [<!ENTITY a "1">]>' + file(track(fix(lat='lat="&a;"'))), "document type", 1),
        ('<?xml version="1.0" encoding="klingon"?>' + file(track(fix())), "encoding", None),
        ('<?xml version="1.0" encoding="shift_jis"?>' + file(track(fix())), "encoding", None),
        (file(track('<x:a lat="1"/>')), "no track points", None),
    ],
)
def test_what_is_not_gpx_is_refused(
    tmp_path: Path, content: str, why: str, line: int | None
) -> None:
    said, where = unreadable(source(tmp_path, "a.gpx", content))
    assert why in said
    assert where == line


def test_the_points_before_a_break_are_read(tmp_path: Path) -> None:
    for cut, why, rows, line in (
        (GPX.index("</trkseg></trk>\n<trk>"), "ends too early", 2, 12),
        (GPX.index("<time>2024-05-01T08:00:01"), "ends too early", 1, 11),
    ):
        found, problem = read_until_broken(source(tmp_path, "a.gpx", GPX[:cut]))
        assert [len(batch) for batch in found] == [rows]
        assert isinstance(problem, UnreadableFileError)
        assert why in problem.reason
        assert problem.line == line
    found, problem = read_until_broken(source(tmp_path, "a.gpx", GPX.replace("</gpx>", "</trk>")))
    assert [len(batch) for batch in found] == [3]
    assert str(problem) == "line 16: its XML is broken: mismatched tag"


def test_a_long_file_is_one_piece_with_its_tracks_in_order(tmp_path: Path) -> None:
    many = 70_000
    text = file(*(track(fix() * (many // 2)) for _ in range(2)))
    (found,) = batches(source(tmp_path, "a.gpx", text))
    assert len(found) == many
    assert found.done == 1.0
    assert found.trace is not None
    traces = found.trace.values()
    # Two tracks that nothing public tells apart: chance says which is the first.
    assert sorted(traces) == [1] * (many // 2) + [2] * (many // 2)
    assert len(set(traces[: many // 2])) == 1
    assert found.line.tolist()[-1] == many + 4
    (packed,) = batches(source(tmp_path, "a.gpx.gz", gzip.compress(text.encode())))
    assert len(packed) == many


def test_a_damaged_archive_is_refused_after_the_points_that_can_be_read(tmp_path: Path) -> None:
    whole = gzip.compress(GPX.encode())
    for content in (whole[:-4], whole[:-8] + b"damaged!", GPX.encode()):
        found, problem = read_until_broken(source(tmp_path, "a.gpx.gz", content))
        assert sum(map(len, found)) in (0, 3)
        assert str(problem) == "it is not a gzip file, or a damaged one"


def test_standard_input_is_read_and_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.BytesIO(GPX.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
    batch = read(Source(None, gpx.FORMAT, Path("stdin.gpx")))
    assert len(batch) == 3
    assert batch.done == 1.0
    assert not given.closed


def ids(user: str | None = None, trace: str | None = None) -> str:
    parts = [f"<h:{k}>{v}</h:{k}>" for k, v in (("user", user), ("trace", trace)) if v is not None]
    return f'<extensions xmlns:h="{gpx.NAMESPACE}">{"".join(parts)}</extensions>'


def test_users_and_traces_are_read_from_our_own_files(tmp_path: Path) -> None:
    text = file(
        track(fix(), ids("ann", "t1")), track(fix(), ids(" bob", "t1")), track(fix(), ids())
    )
    batch = read(source(tmp_path, "a.gpx", text))
    assert batch.user is not None
    assert batch.trace is not None
    assert batch.user.values()[:2] == ["ann", " bob"]
    assert batch.trace.values() == ["t1", "t1", 1]
    assert batch.layout.numbered  # the third has a number, and the others have ids
    assert faults(batch) == [Fault.NONE, Fault.NONE, Fault.USER]


def test_a_user_after_a_piece_without_is_refused(tmp_path: Path) -> None:
    text = file(track(fix() * 70_000), track(fix(), ids("ann")))
    found, problem = read_until_broken(source(tmp_path, "a.gpx", text))
    assert len(found) == 1
    assert found[0].user is None
    assert isinstance(problem, UnreadableFileError)
    assert "has a user" in problem.reason
    assert problem.line == 70_005


def test_elements_of_other_namespaces_are_no_ids(tmp_path: Path) -> None:
    text = file(track(fix(), ids("ann", "t1").replace(gpx.NAMESPACE, "urn:other")))
    batch = read(source(tmp_path, "a.gpx", text))
    assert batch.user is None
    assert batch.layout.numbered


BARE = '<trkpt lat="1" lon="2"/>\n'


@pytest.mark.parametrize("keep", [(), ("ele",)])  # without plain points, and with them
def test_tracks_without_times_are_passed_over_beside_others(
    tmp_path: Path, keep: tuple[str, ...]
) -> None:
    planned = track(BARE * 3)
    late = track(BARE * 2 + fix().replace("</trkpt>", "<ele>5</ele></trkpt>") + BARE)
    empty = track(fix(time=" ") * 2)
    one = source(tmp_path, "a.gpx", file(planned, late, empty, track(fix()), planned))
    batch = read(one, Columns(keep=keep))
    assert faults(batch) == [Fault.TIME, Fault.TIME, Fault.NONE, Fault.TIME, Fault.NONE]
    assert batch.line.tolist() == sorted(batch.line.tolist())
    assert batch.trace is not None
    assert len(set(batch.trace.values())) == 2
    assert batch.passed_over == "3 tracks without times, as planned routes are"


def test_however_long_a_planned_track_is_none_of_it_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpx, "ROWS", 4)
    one = source(tmp_path, "a.gpx", file(track(fix()), track(BARE * 9000), track(fix() * 9)))
    assert faults(read(one)) == [Fault.NONE] * 10


def test_the_summary_says_how_many_tracks_had_no_times(tmp_path: Path) -> None:
    (tmp_path / "a.gpx").write_text(file(track(fix()), track(BARE)))
    m = hereish.fixed_utility(hereish.Privacy(level=2.0, radius_m=100), accuracy_m=3000)
    summary = sanitize_files([tmp_path / "a.gpx"], tmp_path / "out.csv", m)
    assert (summary.points, summary.bad) == (1, {})
    (said,) = summary.without_points
    assert said.endswith("a.gpx: 1 track without times, as planned routes are")
