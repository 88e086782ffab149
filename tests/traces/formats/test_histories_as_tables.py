"""What holds for tables and GPX holds for location histories: names, order, times, messages."""

from __future__ import annotations

import csv
import json
import math
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import hereish
from hereish.errors import PointError
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources
from hereish.traces.faults import FAULT_REASONS, Fault, NoPointsError, UnreadableFileError
from hereish.traces.files import sanitize_files
from hereish.traces.summary import Summary
from tests.support.history_samples import (
    BINARY,
    KML,
    MOVING,
    SAMPLES,
    TCX,
    TIMES,
    as_json,
    sample,
    zipped,
)
from tests.support.markup_samples import faults, read

M = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000, window=hereish.Day("UTC"))
# XML says its encoding itself.
TEXTS = [n for n in SAMPLES if n not in BINARY and not n.endswith((".kml", ".tcx"))]
TOLD = "Home to clinic"
NAMED = {
    "track.kml": KML.replace("<Placemark><gx", f"<Placemark><name>{TOLD}</name><gx"),
    "run.tcx": TCX.replace(f"<Id>{TIMES[0]}</Id>", f"<Id>{TOLD}</Id>"),
    "data.kml": KML.replace(
        "<Placemark><gx",
        f'<Placemark><ExtendedData><Data name="trace"><value>{TOLD}</value></Data></ExtendedData>'
        "<gx",
    ),
    "moving.mfjson": as_json(MOVING)
    .replace(b'"properties": {', f'"properties": {{"trip": "{TOLD}", '.encode(), 1)
    .decode(),
}


def sanitized(
    tmp_path: Path, name: str, content: str | bytes, columns: Columns | None = None
) -> tuple[Summary, list[dict[str, str]]]:
    path, out = tmp_path / name, tmp_path / "out.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    summary = sanitize_files([path], out, M, columns=columns)
    with out.open(encoding="utf-8") as file:
        return summary, list(csv.DictReader(file))


def fixes(*times: object) -> str:
    return json.dumps([{"lat": 61.234567, "lon": 24.765432, "time": time} for time in times])


@pytest.mark.parametrize("name", NAMED)
def test_names_of_traces_are_numbers_unless_they_are_kept(tmp_path: Path, name: str) -> None:
    _, rows = sanitized(tmp_path, name, NAMED[name])
    assert rows
    assert {row[column] for row in rows for column in row if row[column] == TOLD} == set()
    assert all(row["trace" if "trace" in row else "trip"].isdigit() for row in rows)
    _, rows = sanitized(tmp_path, name, NAMED[name], Columns(keep_trace_names=True))
    assert TOLD in {value for row in rows for value in row.values()}


def test_names_in_a_geopackage_are_numbers_too(tmp_path: Path) -> None:
    table = f"trip,time,lat,lon\n{TOLD},{TIMES[0]},60,25\n"
    (tmp_path / "in.csv").write_text(table)
    named = tmp_path / "in.gpkg"
    sanitize_files([tmp_path / "in.csv"], named, M, columns=Columns(keep_trace_names=True))
    assert TOLD.encode() in named.read_bytes()
    sanitize_files([named], tmp_path / "out.gpkg", M)
    assert TOLD.encode() not in (tmp_path / "out.gpkg").read_bytes()


def test_names_of_files_in_archives_are_no_traces(tmp_path: Path) -> None:
    tracks = {f"{TOLD}.kml": KML.encode(), "other.tcx": TCX.encode()}
    _, rows = sanitized(tmp_path, "all.zip", zipped(tracks))
    assert {row["trace"] for row in rows} == {"1-1", "1-2", "2-1", "2-2"}


def test_the_newest_first_and_repeated_ones_lose_nothing_else(tmp_path: Path) -> None:
    times = [f"2024-05-01T08:{minute:02}:00Z" for minute in range(30, 10, -1)]
    summary, rows = sanitized(tmp_path, "in.json", fixes(*times, times[0]))
    assert [row["time"] for row in rows] == sorted(times)
    assert summary.bad == {FAULT_REASONS[Fault.TWICE]: 1}


def test_more_than_a_tenth_is_not_dropped_without_another_question(tmp_path: Path) -> None:
    path, out = tmp_path / "in.json", tmp_path / "out.csv"
    path.write_text(fixes(*TIMES, "soon"))
    with pytest.raises(PointError, match="more than a tenth: 1 of 4 points"):
        sanitize_files([path], out, M, drop_bad=True)
    assert sanitize_files([path], out, M, drop_bad="all").released == 3


def test_numbers_as_times_are_plausible_or_said(tmp_path: Path) -> None:
    with pytest.raises(PointError, match="line 1: its time is a number, and no plausible"):
        sanitized(tmp_path, "in.json", fixes(12, 13))
    _, rows = sanitized(tmp_path, "in.json", fixes(12, 13), Columns(time_format="s"))
    assert [row["time"] for row in rows] == ["1970-01-01T00:00:12Z", "1970-01-01T00:00:13Z"]
    with pytest.raises(PointError, match="may begin with the day or with the month"):
        sanitized(tmp_path, "in.json", fixes("3/6/2025 08:00"))


def test_units_of_named_members_are_known_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    place = {"lat": 0, "lon": 0, "my_lat_e7": 612345670, "my_lon_e7": 247654320}
    path.write_text(json.dumps([place | {"time": TIMES[0]}]))
    (source,) = find_sources([str(path)])
    columns = Columns(lat="my_lat_e7", lon="my_lon_e7", coordinate_unit="e7")
    (batch,) = source.format.read(source, columns)
    assert (batch.lat[0], batch.lon[0]) == pytest.approx((61.234567, 24.765432), abs=1e-9)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("name", TEXTS)
def test_other_encodings_are_read(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / name
    found = []
    for data in (SAMPLES[name][0], SAMPLES[name][0].decode().encode(encoding)):
        path.write_bytes(data)
        (source,) = find_sources([str(path)])
        assert source.format.name == SAMPLES[name][1]
        found.append(read(source))
    assert found[0].at_us.tolist() == found[1].at_us.tolist()
    assert found[0].lat.tolist() == found[1].lat.tolist()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_that_breaks_off_says_what_was_expected(tmp_path: Path, name: str) -> None:
    content = SAMPLES[name][0]
    for end in (0, 10, len(content) * 2 // 3):
        path = tmp_path / name
        path.write_bytes(content[:end])
        message = refusal(path, tmp_path / "out.csv")
        assert message or end
        for part in ("; expected ", "nothing was released", "To lose nothing, "):
            assert not message or part in message


def refusal(path: Path, out: Path) -> str:
    """Why a file cannot be read; empty if it can, or if a column that is named is missing."""
    try:
        sanitize_files([path], out, M)
    except PointError as error:
        return str(error)
    except hereish.ParameterError as error:
        return "" if "no column is called" in str(error) else str(error)
    return ""


def test_what_is_wrong_with_a_file_survives_another_process() -> None:
    errors = (
        UnreadableFileError("broken", 3, expected="all", remedy="mend it", rest_lost=False),
        NoPointsError("nothing in it", expected="points", remedy="leave it out"),
    )
    for error in errors:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301  # what has just been made
        assert type(again) is type(error)
        assert vars(again) == vars(error)


def test_dates_and_times_of_a_geopackage_may_be_in_two_columns(tmp_path: Path) -> None:
    whole = read(sample(tmp_path, "ours.gpkg"))
    with closing(sqlite3.connect(tmp_path / "ours.gpkg")) as database:
        database.execute("ALTER TABLE reports ADD COLUMN date TEXT")
        database.execute("UPDATE reports SET date = substr(time, 1, 10), time = substr(time, 12)")
        database.commit()
    (source,) = find_sources([str(tmp_path / "ours.gpkg")])
    for columns in (Columns(), Columns(date="date")):
        batch = read(source, columns)
        assert faults(batch) == [Fault.NONE] * 3
        assert batch.at_us.tolist() == whole.at_us.tolist()
