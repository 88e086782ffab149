"""Exports as they come, folders with other files, and what the summary says of them."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import pytest

import hereish
from hereish.cli._sanitize_summary import summarise
from hereish.errors import ParameterError, PointError
from hereish.traces.discovery import find_inputs, find_sources
from hereish.traces.exports import choose_files
from hereish.traces.files import sanitize_files
from tests.support.history_samples import (
    DAWARICH,
    LINES,
    RECORDS,
    SEMANTIC,
    TCX,
    as_json,
    fit,
    zipped,
)
from tests.support.markup_samples import GPX, POINTS

DAILY = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000, window=hereish.Day("UTC"))
INDOORS = fit(places=())
ROUTE = GPX.replace("<time>", "<t>").replace("</time>", "</t>")
STRAVA = {
    "activities.csv": b"Activity ID,Activity Date\n1,x\n",
    "activities/1.gpx": GPX.encode(),
    "activities/2.fit.gz": gzip.compress(fit()),
    "activities/3.tcx.gz": gzip.compress(b"  " + TCX.encode()),
    "activities/4.fit.gz": gzip.compress(INDOORS),
    "routes/1.gpx": ROUTE.encode(),
    "media/1.jpg": b"jpeg",
    "profile.csv": b"lat,lon,time\n1,2,3\n",
}
GARMIN = {
    "DI_CONNECT/DI-Connect-Uploaded-Files/UploadedFiles_0-_Part1.zip": zipped(
        {"a@b.c_1.fit": fit(), "a@b.c_2.fit": INDOORS, "a@b.c_3.txt": b"x"}
    ),
    "DI_CONNECT/DI-Connect-Wellness/sleep.json": b'[{"lat": 1, "lon": 2}]',
    "customer_data/customer.json": b"{}",
}
TAKEOUT = {
    "Takeout/Location History (Timeline)/Records.json": as_json(RECORDS),
    "Takeout/Location History (Timeline)/Settings.json": b'{"deviceSettings": []}',
    "Takeout/Location History (Timeline)/Semantic Location History/2024/2024_MAY.json": as_json(
        SEMANTIC
    ),
    "Takeout/archive_browser.html": b"<html/>",
    "Takeout/Location History (Timeline)/Tombstones.csv": b"Timestamp,Why\n1,2\n",
    "Takeout/Fit/Activities/walk.tcx": TCX.encode(),
    # Places that somebody saved, at the time when they were, and labels without a time.
    "Takeout/Maps (your places)/Saved Places.json": POINTS.replace('"time"', '"date"').encode(),
    "Takeout/Maps/Labeled places.json": POINTS.replace('"time"', '"name"').encode(),
}
HISTORY = [name for name in TAKEOUT if name.endswith(("Records.json", "MAY.json"))]
DAWARICHS = {
    "data.json": as_json(DAWARICH),
    "files/import_1.gpx": GPX.encode(),
}
DAWARICH_LINES = {
    "export/manifest.json": b"{}",
    "export/points/2024/2024-05.jsonl": LINES.encode(),
    "export/visits/2024/2024-05.jsonl": b'{"id": 1}\n',
    "export/files/import_1.gpx": GPX.encode(),
}


@pytest.mark.parametrize(
    ("files", "read", "ignored"),
    [
        (STRAVA, [name for name in STRAVA if name.startswith("activities/")], 4),
        (GARMIN, ["a@b.c_1.fit", "a@b.c_2.fit"], 3),
        (TAKEOUT, HISTORY, 6),
        (DAWARICHS, ["data.json"], 1),
        (DAWARICH_LINES, ["export/points/2024/2024-05.jsonl"], 3),
    ],
    ids=["strava", "garmin", "takeout", "dawarich", "dawarich-lines"],
)
@pytest.mark.parametrize("packed", [True, False])
def test_of_an_export_the_files_of_positions_are_read(
    tmp_path: Path, files: dict[str, bytes], read: list[str], ignored: int, packed: bool
) -> None:
    place = tmp_path / ("export.zip" if packed else "export")
    if packed:
        place.write_bytes(zipped(files))
    for name, content in {} if packed else files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    found = find_inputs([str(place)])
    names = [
        source.members[-1] if source.members else source.below.as_posix()
        for source in found.sources
    ]
    assert sorted(names) == sorted(read)
    assert sum(found.ignored.values()) == ignored


def test_a_takeout_without_a_history_has_workouts_or_says_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "takeout.zip"
    rest = {name: content for name, content in TAKEOUT.items() if name not in HISTORY}
    path.write_bytes(zipped(rest))
    assert [source.format.name for source in find_sources([str(path)])] == ["tcx"]
    path.write_bytes(zipped({name: rest[name] for name in rest if "Fit" not in name}))
    with pytest.raises(ParameterError, match="since 2024 the phone keeps it"):
        find_sources([str(path)])


def test_a_file_of_a_takeout_that_is_named_is_read(tmp_path: Path) -> None:
    path = tmp_path / "Takeout" / "Saved Places.json"
    path.parent.mkdir()
    path.write_text(POINTS)
    assert [source.path for source in find_sources([str(path)])] == [path]


def test_any_other_folder_is_read_whole() -> None:
    assert choose_files([Path("routes/a.gpx"), Path("b.csv")])(Path("routes/a.gpx"))


def test_an_archive_is_sanitised_and_the_rest_is_counted(tmp_path: Path) -> None:
    place, out = tmp_path / "strava.zip", tmp_path / "out.csv"
    place.write_bytes(zipped(STRAVA))
    assert sanitize_files([place], out, DAILY).traces == 5  # of watches, one per file
    folder = tmp_path / "public"
    tally = sanitize_files([place], folder, DAILY, to_form="gpx")
    assert (tally.files, tally.points) == (4, 9)
    assert [text.split(": ")[1] for text in tally.without_points] == ["activities/4.fit.gz"]
    assert tally.ignored == {".csv": 2, ".gpx": 1, ".jpg": 1}
    written = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.gpx"))
    assert written == [f"strava/activities/{i}.gpx" for i in (1, 2, 3)]
    text = summarise(tally, DAILY, str(folder), None, False)
    assert "no points: " in text
    assert "4 other files in the folders or archives" in text
    assert "2 .csv, 1 .gpx, 1 .jpg" in text


def test_jobs_read_archives_too(tmp_path: Path) -> None:
    point = b'<trkpt lat="1" lon="2"><time>2024-05-01T08:00:%02d.%06dZ</time></trkpt>\n'
    points = b"".join(point % (i // 1000, i) for i in range(50_000))
    long = b'<gpx version="1.1"><trk><trkseg>' + points + b"</trkseg></trk></gpx>"
    place = tmp_path / "all.zip"
    place.write_bytes(zipped({"a.gpx": long, "b.gpx": long.replace(b"2024-", b"2025-")}))
    tallies = [
        sanitize_files([place], tmp_path / f"{jobs}.csv", DAILY, jobs=jobs, seed=1)
        for jobs in (1, 2)
    ]
    assert tallies[0].points == tallies[1].points == 100_000
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()


def test_one_file_without_points_is_an_error_that_says_what_it_has(tmp_path: Path) -> None:
    waypoints = tmp_path / "marks.gpx"
    waypoints.write_text(
        '<gpx version="1.1"><wpt lat="1" lon="2"/><wpt lat="1" lon="2"/><rte/></gpx>'
    )
    with pytest.raises(
        PointError, match=r"it has no track points, but 2 waypoints and 1 route: places"
    ):
        sanitize_files([waypoints], tmp_path / "out.csv", DAILY)
    waypoints.write_text(ROUTE)
    with pytest.raises(PointError, match="none of its points has a time: it is a route"):
        sanitize_files([waypoints], tmp_path / "out.csv", DAILY)


def test_nothing_but_files_without_points_is_an_error_too(tmp_path: Path) -> None:
    for i in (1, 2):
        (tmp_path / f"{i}.fit").write_bytes(INDOORS)
    with pytest.raises(PointError, match="workout indoors"):
        sanitize_files([tmp_path], tmp_path / "out.csv", DAILY)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.xlsx", "Save it as CSV"),
        ("a.shp", "ogr2ogr out.gpkg a.shp"),
        ("a.igc", "gpsbabel -t -i igc -f a.igc -o gpx -F out.gpx"),
        ("takeout.tgz", "Unpack it"),
        ("a.sbp", "GPSBabel"),
    ],
)
def test_an_unknown_ending_says_what_is_read_and_what_converts(
    tmp_path: Path, name: str, remedy: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"x")
    with pytest.raises(ParameterError, match=r"\.gpx, \.geojson, .*\.zip are read") as error:
        find_sources([str(path)])
    assert remedy in str(error.value)


def test_a_format_that_is_only_read_is_no_output(tmp_path: Path) -> None:
    source = tmp_path / "a.fit"
    source.write_bytes(fit())
    for out in ("out.fit", "folder"):
        with pytest.raises(ParameterError, match="fit is read and not written"):
            sanitize_files([source], tmp_path / out, DAILY)
    (tmp_path / "b.tcx").write_text(TCX)
    with pytest.raises(ParameterError, match=r"inputs are fit, tcx; .* one of gpx, geojson, csv"):
        sanitize_files([source, tmp_path / "b.tcx"], tmp_path / "folder", DAILY)


def test_users_are_files_and_folders_inside_archives(tmp_path: Path) -> None:
    place = tmp_path / "people.zip"
    place.write_bytes(zipped({"ann/1.gpx": GPX.encode(), "bob/2.gpx": GPX.encode()}))
    for users_from, users in (("file", {"1", "2"}), ("folder", {"ann", "bob"})):
        out = tmp_path / f"{users_from}.csv"
        sanitize_files([place], out, DAILY, users_from=users_from)  # type: ignore[arg-type]  # one of its two
        assert {line.split(",")[0] for line in out.read_text().splitlines()[1:]} == users
