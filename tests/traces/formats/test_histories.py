"""Every sample of a location history is read, and what it is read as."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources
from hereish.traces.faults import Fault, NoPointsError
from hereish.traces.formats import _encodings
from hereish.traces.formats.registry import get_format
from hereish.traces.table import RowBatch
from tests.support.history_samples import (
    ANDROID,
    BINARY,
    KML,
    NMEA_PLACES,
    OVERLAND,
    REC,
    RECORDS,
    ROWS,
    SAMPLES,
    SEMICIRCLES,
    TCX,
    TIMES,
    UNIX,
    as_json,
    fit,
    gga,
    rmc,
    sample,
    sentence,
)
from tests.support.markup_samples import (
    GUARANTEE,
    LATS,
    LONS,
    batches,
    check_batch,
    faults,
    read,
    released,
    unreadable,
    written,
)

SPAN = """<kml><Placemark><TimeSpan><begin>2024-05-01T08:00:00Z</begin></TimeSpan>
<LineString><coordinates>1,2 3,4</coordinates></LineString></Placemark></kml>"""
# Those that hold other places and times than the three of all others.
OTHERS = ("visits.json", "run.fit", "log.nmea", "polarsteps.json")


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_recognised_and_read(tmp_path: Path, name: str) -> None:
    form = sample(tmp_path, name).format
    (found,) = find_sources([str(tmp_path / name)])
    assert found.format is form
    batch = read(found)
    check_batch(batch)
    assert set(faults(batch)) == {Fault.NONE}
    if name not in OTHERS:
        assert sorted(rows_of(batch)) == sorted(
            (unix * 1_000_000, round(lat, 7), round(lon, 7))
            for unix, lat, lon in zip(UNIX, LATS, LONS, strict=True)
        )


def rows_of(batch: RowBatch) -> list[tuple[int, float, float]]:
    columns = (batch.at_us.tolist(), batch.lat.round(7).tolist(), batch.lon.round(7).tolist())
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in BINARY])
def test_a_sample_is_read_compressed(tmp_path: Path, name: str) -> None:
    import gzip

    plain = read(sample(tmp_path, name))
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(SAMPLES[name][0]))
    (found,) = find_sources([str(packed)])
    assert rows_of(read(found)) == rows_of(plain)


def test_lists_far_from_the_beginning_are_found(tmp_path: Path) -> None:
    profile = {"userLocationProfile": {"frequentPlaces": [{"label": "HOME"}] * 2000}}
    content = as_json({**profile, "semanticSegments": ANDROID["semanticSegments"]})
    (tmp_path / "far.json").write_bytes(content)
    (found,) = find_sources([str(tmp_path / "far.json")])
    assert len(read(found)) == 2


def test_visits_are_read_where_nothing_else_is_there(tmp_path: Path) -> None:
    """Their place when they began and when they ended."""
    batch = read(sample(tmp_path, "visits.json"))
    assert rows_of(batch) == [(unix * 1_000_000, LATS[2], LONS[2]) for unix in UNIX[:2]]


def test_the_places_of_a_watch_are_parts_of_a_circle(tmp_path: Path) -> None:
    batch = read(sample(tmp_path, "run.fit"))
    expected = np.array(SEMICIRCLES) * 180 / 2**31
    assert np.abs(np.column_stack([batch.lat, batch.lon]) - expected).max() < 1e-12
    assert batch.at_us.tolist() == [(1_714_550_400 + 60 * i) * 1_000_000 for i in range(3)]


def test_a_watch_that_knew_no_date_gives_no_times(tmp_path: Path) -> None:
    batch = read(sample(tmp_path, "run.fit", fit(first_s=100)))
    assert set(faults(batch)) == {Fault.TIME}


def test_sentences_of_one_second_are_one_fix_and_midnight_is_crossed(tmp_path: Path) -> None:
    batch = read(sample(tmp_path, "log.nmea"))
    midnight = 1_714_608_000  # 2 May in UTC
    assert batch.at_us.tolist() == [round((midnight + s) * 1e6) for s in (-0.5, 1, 3)]
    assert batch.lat[0] == pytest.approx(48 + 12.73619 / 60, abs=1e-12)
    assert batch.lon[0] == pytest.approx(-(11 + 11.58247 / 60), abs=1e-12)


def test_a_damaged_sentence_is_marked_and_one_without_a_fix_left_out(tmp_path: Path) -> None:
    good = rmc("080000", "010524", *NMEA_PLACES[0])
    text = good + good.replace("080000", "080001") + rmc("080002", "010524", "", "", "V")
    batch = read(sample(tmp_path, "log.nmea", text.encode()))
    assert faults(batch) == [Fault.NONE, Fault.LINE]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n", ""])
@pytest.mark.parametrize("block", [1, 7, 1 << 16])
def test_no_sentence_is_lost_whatever_ends_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, block: int
) -> None:
    monkeypatch.setattr(_encodings, "CHUNK_BYTES", block)
    sentences = [rmc(f"08000{i}", "010524", *NMEA_PLACES[0]).rstrip() for i in range(5)]
    text = "".join(sentence + end for sentence in sentences)
    batch = read(sample(tmp_path, "log.nmea", text.encode()))
    assert faults(batch) == [Fault.NONE] * 5
    assert batch.line.tolist() == ([1, 2, 3, 4, 5] if end else [1] * 5)


@pytest.mark.parametrize(("mode", "count"), [("AN", 1), ("NNR", 1), ("N", 0), ("NN", 0), ("", 0)])
def test_fixes_of_several_systems_of_satellites_are_read(
    tmp_path: Path, mode: str, count: int
) -> None:
    date = sentence("GNZDA,075959.00,01,05,2024,00,00")
    place = f"{NMEA_PLACES[0][0]},N,{NMEA_PLACES[0][1]},W"
    text = date + sentence(f"GNGNS,080000.00,{place},{mode},12,0.9,12.0,18.0,,")
    if not count:
        assert "no positions" in unreadable(sample(tmp_path, "log.nmea", text.encode()))[0]
        return
    batch = read(sample(tmp_path, "log.nmea", text.encode()))
    assert batch.at_us.tolist() == [1_714_550_400_000_000]
    assert batch.lat[0] == pytest.approx(48 + 12.73619 / 60, abs=1e-12)


def test_sentences_without_a_date_are_named(tmp_path: Path) -> None:
    text = gga("080000", *NMEA_PLACES[0]) + gga("080001", *NMEA_PLACES[1])
    reason, _ = unreadable(sample(tmp_path, "log.nmea", text.encode()))
    assert "times of day and no date" in reason


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("track.kml", KML.replace("when>", "was>"), "no times of day"),
        ("track.kml", SPAN, "its lines tell when they begin and end"),
        ("track.kml", "<kml/>", "no placemarks with places and times"),
        ("track.kml", "<html/>", "not KML"),
        ("run.tcx", TCX.replace("Position>", "P>").replace("Degrees>", "D>"), "workout indoors"),
        ("run.tcx", TCX.replace("Time>", "T>"), "none of its points has a time"),
        ("run.tcx", "<TrainingCenterDatabase/>", "no track points"),
        ("run.fit", fit(places=()), "workout indoors"),
        ("run.fit", b"PK\3\4", "not FIT"),
        ("run.fit", b"", "empty"),
        ("android.json", as_json({"semanticSegments": []}), "no positions with times"),
        ("Records.json", b'{"locations": [', "ends too early"),
        ("Records.json", b'{"locations": [}', "JSON is broken"),
        ("Records.json", b" ", "empty"),
        ("Records.json", b"\xff\xfe{", "UTF-16"),
        ("lines.jsonl", b"\n", "empty"),
        ("2024-05.rec", REC.replace('"location"', '"encrypted"'), "messages are encrypted"),
        ("2024-05.rec", REC.replace('"location"', '"card"'), "no positions with times"),
        ("moving.json", b'{"type": "Feature", "temporalGeometry": {}}', "no moving points"),
        ("ours.gpkg", b"SQLite format 3\0", "not a GeoPackage"),
        ("track.kmz", b"PK\3\4", "not a zip archive"),
        ("log.nmea", b"hello\n", "no sentences"),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: str | bytes, reason: str
) -> None:
    data = content.encode() if isinstance(content, str) else content
    found, _ = unreadable(sample(tmp_path, name, data))
    assert reason in found


def test_fields_are_kept_by_their_names(tmp_path: Path) -> None:
    for name, field, values in (
        ("Records.json", "accuracy", [20, 21, 22]),
        ("2024-05.rec", "acc", [0, 1, 2]),
        ("overland.json", "speed", [0, 1, 2]),
        ("moving.json", "speed", [0, 1, 2]),
        ("track.kml", "hr", ["61", "63", None]),
        ("run.tcx", "HeartRateBpm", ["90", "91", "92"]),
    ):
        batch = read(sample(tmp_path, name), Columns(keep=(field,)))
        assert batch.kept[field].tolist() == values
    with pytest.raises(ParameterError, match="have no 'speed'"):
        batches(sample(tmp_path, "Records.json"), Columns(keep=("speed",)))


def test_users_are_a_field_that_is_named(tmp_path: Path) -> None:
    plain = read(sample(tmp_path, "overland.json"))
    assert plain.user is None
    named = read(sample(tmp_path, "overland.json"), Columns(user="device_id"))
    assert named.user is not None
    assert named.user.values() == ["phone"] * 3


def test_tracks_and_activities_are_traces_numbered_by_their_times(tmp_path: Path) -> None:
    for name in ("track.kml", "run.tcx", "moving.json"):
        batch = read(sample(tmp_path, name))
        assert batch.trace is not None
        assert batch.trace.values() == [1, 1, 2]
        assert batch.layout.numbered


def test_places_of_a_track_may_be_separated_by_commas(tmp_path: Path) -> None:
    plain = sample(tmp_path, "track.kml")
    text = re.sub(r"(<(?:gx:)?coord>\S+) (\S+) ?", r"\1,\2,", KML)
    assert text.count(",") > KML.count(",")
    (tmp_path / "commas").mkdir()
    other = sample(tmp_path / "commas", "track.kml", text.encode())
    assert rows_of(read(other)) == rows_of(read(plain))


@pytest.mark.parametrize("kind", ["MovingGeomPoint", "MovingPoint"])
def test_moving_points_of_a_database_are_read(tmp_path: Path, kind: str) -> None:
    places = [[lon, lat] for lat, lon in zip(LATS, LONS, strict=True)]
    parts = [
        {"coordinates": places[:2], "datetimes": list(TIMES[:2]), "lower_inc": True},
        {"coordinates": places[2:], "datetimes": list(TIMES[2:])},
    ]
    whole = {"coordinates": places, "datetimes": list(TIMES)}
    for moving in (whole, {"sequences": parts}):
        batch = read(sample(tmp_path, "moving.json", as_json({"type": kind, **moving})))
        assert (faults(batch), batch.lat.tolist()) == ([Fault.NONE] * 3, list(LATS))
        assert batch.at_us.tolist() == [unix * 1_000_000 for unix in UNIX]


def test_points_of_a_kml_are_read_where_there_is_no_track(tmp_path: Path) -> None:
    """Timed points; else places with a span of time, which are visits; never years alone."""
    point = f"<Point><coordinates>{LONS[0]},{LATS[0]}</coordinates></Point>"
    stamp = f"<Placemark><TimeStamp><when>{TIMES[0]}</when></TimeStamp>{point}</Placemark>"
    year = stamp.replace(TIMES[0], "1997")
    span = (
        f"<Placemark><TimeSpan><begin>{TIMES[0]}</begin><end>{TIMES[1]}</end></TimeSpan>{point}"
        "</Placemark>"
    )
    for content, expected in ((stamp + year + span, UNIX[:1]), (year + span, UNIX[:2])):
        document = f"<kml><Document>{content}</Document></kml>"
        batch = read(sample(tmp_path, "track.kml", document.encode()))
        assert batch.at_us.tolist() == [unix * 1_000_000 for unix in expected]
        assert set(faults(batch)) == {Fault.NONE}


def test_the_time_of_a_view_is_not_that_of_a_place(tmp_path: Path) -> None:
    """Google Earth keeps from when the picture was that somebody looked at."""
    view = f"<LookAt><gx:TimeStamp><when>{TIMES[0]}</when></gx:TimeStamp></LookAt>"
    stamp = f"<TimeStamp><when>{TIMES[1].replace('T', ' ')}</when></TimeStamp>"
    point = "<Point><coordinates>24.9,60.1</coordinates></Point>"
    marks = [f"<Placemark>{time}{point}</Placemark>" for time in (view, view + stamp)]
    batch = read(sample(tmp_path, "track.kml", f"<kml>{''.join(marks)}</kml>".encode()))
    assert batch.at_us.tolist() == [UNIX[1] * 1_000_000]


def test_a_prefix_that_is_not_declared_is_passed_over(tmp_path: Path) -> None:
    text = KML.replace(' xmlns:gx="http://www.google.com/kml/ext/2.2"', "")
    assert text != KML
    (batch,) = batches(sample(tmp_path, "track.kml", text.encode()))
    assert len(batch) == 3


def test_times_that_are_more_than_places_are_not_called_a_route(tmp_path: Path) -> None:
    """Which belongs to which cannot be told, so each place is a fault, and none is lost unsaid."""
    text = KML.replace("<gx:coord/>", "")
    (batch,) = batches(sample(tmp_path, "track.kml", text.encode()))
    assert faults(batch) == [Fault.LINE, Fault.LINE, Fault.NONE]


def test_courses_are_read_where_there_are_no_activities(tmp_path: Path) -> None:
    course = TCX.replace("Activities>", "Courses>").replace("Activity", "Course")
    assert len(read(sample(tmp_path, "run.tcx", course.encode()))) == 3
    courses = course[course.index("<Courses>") : course.index("</TrainingCenter")]
    both = TCX.replace("</Activities>", f"</Activities>{courses}")
    assert len(read(sample(tmp_path, "run.tcx", both.encode()))) == 3


def test_e7_integers_that_lost_their_sign_are_mended(tmp_path: Path) -> None:
    record = {"latitudeE7": 1, "longitudeE7": 4294967296 - 1221474242, "timestamp": TIMES[0]}
    batch = read(sample(tmp_path, "Records.json", as_json({"locations": [record]})))
    assert batch.lon.tolist() == [-122.1474242]


def test_records_of_scans_without_a_place_are_left_out(tmp_path: Path) -> None:
    scan = {"timestamp": TIMES[0], "deviceTag": 1, "source": "WIFI"}
    records = {"locations": [scan, *RECORDS["locations"], scan]}
    (batch,) = batches(sample(tmp_path, "Records.json", as_json(records)))
    assert len(batch) == 3
    assert not batch.fault.any()
    reason, _ = unreadable(sample(tmp_path, "Records.json", as_json({"locations": [scan]})))
    assert reason == "it has no positions with times"


def test_a_visit_to_a_place_that_is_not_known_is_in_its_middle(tmp_path: Path) -> None:
    visit = {
        "location": {"placeId": "x"},
        "centerLatE7": 601_699_000,
        "centerLngE7": 249_384_000,
        "duration": {"startTimestamp": TIMES[0], "endTimestamp": TIMES[1]},
    }
    history = {"timelineObjects": [{"placeVisit": visit}]}
    batch = read(sample(tmp_path, "2024_MAY.json", as_json(history)))
    assert batch.lat.tolist() == [60.1699, 60.1699]
    assert batch.lon.tolist() == [24.9384, 24.9384]


def test_a_line_may_hold_a_list_of_fixes(tmp_path: Path) -> None:
    """As Overland sends them: a batch each time."""
    batch_of_two = {"locations": OVERLAND["locations"][:2], "trip": {}}
    last = {"locations": OVERLAND["locations"][2:]}
    lines = "".join(json.dumps(one) + "\n" for one in (batch_of_two, {"event": "closed"}, last))
    batch = read(sample(tmp_path, "lines.jsonl", lines.encode()))
    assert batch.lat.tolist() == list(LATS)
    assert batch.line.tolist() == [1, 1, 3]


def test_items_that_cannot_be_read_are_marked(tmp_path: Path) -> None:
    segments = [*ANDROID["semanticSegments"], 3, {"timelinePath": [None, {"point": 4}]}]
    batch = read(sample(tmp_path, "android.json", as_json({"semanticSegments": segments})))
    assert faults(batch) == [Fault.NONE, Fault.NONE, Fault.LINE, Fault.LINE, Fault.TIME]


@pytest.mark.parametrize("form", ["kml", "kmz", "mfjson", "gpkg", "tsv"])
def test_what_is_written_is_read_again_with_its_guarantee(tmp_path: Path, form: str) -> None:
    kept = {"note": np.array(["a&b", None, "<c>"], dtype=object)}
    rows = released(ROWS.at_us.tolist(), LATS, LONS, ["a", "b", "a"], ["t", "t", "u"], kept)
    path = tmp_path / f"out.{form}"
    path.write_bytes(written(form, rows))
    (found,) = find_sources([str(path)])
    keep = () if form == "tsv" else ("kind", "cost", "note")
    batch = read(found, Columns(keep=keep))
    order = np.argsort(batch.at_us)
    batch = batch.take(order)
    assert [(at, lat, lon) for at, lat, lon in rows_of(batch)] == [
        (unix * 1_000_000, lat, lon) for unix, lat, lon in zip(UNIX, LATS, LONS, strict=True)
    ]
    assert batch.user is not None
    assert batch.trace is not None
    assert (batch.user.values(), batch.trace.values()) == (["a", "b", "a"], ["t", "t", "u"])
    if keep:
        assert batch.kept["kind"].tolist() == ["hard", "easy", "untested"]
        assert [float(cost) for cost in batch.kept["cost"]] == rows.cost.tolist()
        assert [value or None for value in batch.kept["note"]] == ["a&b", None, "<c>"]
    if form != "tsv":
        assert found.format.read_guarantee is not None
        assert found.format.read_guarantee(found) == GUARANTEE


def test_an_empty_output_says_its_guarantee(tmp_path: Path) -> None:
    for form in ("kml", "kmz", "mfjson", "gpkg"):
        path = tmp_path / f"out.{form}"
        path.write_bytes(written(form))
        (found,) = find_sources([str(path)])
        assert found.format.read_guarantee is not None
        assert found.format.read_guarantee(found) == GUARANTEE
        with pytest.raises(NoPointsError):
            batches(found)


def test_a_geopackage_is_one_to_other_programs_too(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas")
    path = tmp_path / "out.gpkg"
    path.write_bytes(SAMPLES["ours.gpkg"][0])
    frame = geopandas.read_file(path)
    assert frame.crs.to_epsg() == 4326
    assert sorted(frame.geometry.y) == sorted(LATS)
    assert sorted(moment.timestamp() for moment in frame["time"]) == list(UNIX)
    theirs = tmp_path / "theirs.gpkg"
    frame.to_file(theirs, layer="track_points")
    (found,) = find_sources([str(theirs)])
    assert sorted(rows_of(read(found))) == sorted(rows_of(read(sample(tmp_path, "ours.gpkg"))))
    projected = tmp_path / "projected.gpkg"
    frame.to_crs(3857).to_file(projected)
    reason, _ = unreadable(find_sources([str(projected)])[0])
    assert "WGS 84" in reason


def test_a_missing_library_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name, module in (("run.fit", "fitdecode"), ("Records.json", "ijson")):
        one = sample(tmp_path, name)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ParameterError, match=r"pip install 'hereish\[formats\]'$"):
                batches(one)


def test_a_format_that_is_only_read_says_so() -> None:
    for name in ("google", "records", "fit", "tcx", "nmea"):
        assert get_format(name).open_writer is None


@pytest.mark.parametrize(
    "item",
    [
        {"coords": {"latitude": 48.1, "longitude": 11.5}, "timestamp": 1714550400000},
        {"location": {"lat": 48.1, "lng": 11.5}, "recorded_at": TIMES[0]},
        {"latitude": 48.1, "longitude": 11.5, "created_at": TIMES[0]},
        {"lat": 48.1, "lon": 11.5, "Event Time": TIMES[0], "ts": None},
    ],
)
def test_objects_of_browsers_and_rarer_names_of_times_are_read(
    tmp_path: Path, item: dict[str, Any]
) -> None:
    (tmp_path / "list.json").write_text(json.dumps([item]))
    (source,) = find_sources([str(tmp_path / "list.json")])
    (batch,) = source.format.read(source, Columns())
    assert (batch.fault.tolist(), batch.at_us.tolist()) == ([0], [UNIX[0] * 1_000_000])
    assert (batch.lat.tolist(), batch.lon.tolist()) == ([48.1], [11.5])
