"""Lists of JSON objects, as apps and services write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources
from hereish.traces.faults import Fault
from hereish.traces.table import RowBatch
from tests.support.markup_samples import faults, read

AT = "2024-05-01T08:00:00Z"
AT_S = 1_714_550_400
PLACE = {"lat": 48.1, "lon": 11.5}


def read_file(folder: Path, name: str, content: str) -> RowBatch:
    (folder / name).write_text(content)
    (source,) = find_sources([str(folder / name)])
    assert source.format.name == "records"
    return read(source)


@pytest.mark.parametrize(
    "top",
    [
        {"steps": [{"id": 1, "location": PLACE, "start_time": AT_S, "end_time": AT_S + 60}]},
        {"id": 7, "all_steps": [{"location": {**PLACE, "detail": "x"}, "start_time": AT_S + 0.0}]},
        {"samples": [{"date": AT, "location": {"latitude": 48.1, "longitude": 11.5}}]},
        {"items": [{"createdAt": AT_S, "lat": 48.1, "lng": 11.5}], "count": 1},
        [{"name": "x", "arrived": AT_S, "departed": AT_S + 60, **PLACE}],
        [{"@timestamp": AT, "location": PLACE}],
        # Beside a point, Dawarich writes null.
        [{"latitude": None, "longitude": None, "lonlat": "POINT(11.5 48.1)", "timestamp": AT_S}],
    ],
)
def test_lists_of_apps_are_read(tmp_path: Path, top: Any) -> None:
    batch = read_file(tmp_path, "a.json", json.dumps(top))
    assert (faults(batch), batch.at_us.tolist()) == ([Fault.NONE], [AT_S * 1_000_000])
    assert (batch.lat.tolist(), batch.lon.tolist()) == ([48.1], [11.5])


def test_the_arrival_is_taken_only_where_there_is_no_time(tmp_path: Path) -> None:
    items = [{**PLACE, "arrived": AT_S + 60, "ts": AT_S}]
    assert read_file(tmp_path, "a.json", json.dumps(items)).at_us.tolist() == [AT_S * 1_000_000]


@pytest.mark.parametrize(
    ("place", "fault"),
    [({"lat": None, "lon": None}, Fault.LAT), ({"lat": 1.0, "lon": None}, Fault.LON)],
)
def test_a_place_that_is_null_is_no_place(
    tmp_path: Path, place: dict[str, Any], fault: Fault
) -> None:
    lines = [{**one, "tst": AT_S, "_type": "location"} for one in (PLACE, place)]
    text = "\n".join(map(json.dumps, lines))
    assert faults(read_file(tmp_path, "a.jsonl", text)) == [Fault.NONE, fault]


def test_lists_of_texts_are_of_an_event(tmp_path: Path) -> None:
    lines = [{**PLACE, "tst": AT_S}, {"event": "shopping", "items": ["milk"]}]
    text = "\n".join(map(json.dumps, lines))
    assert faults(read_file(tmp_path, "a.jsonl", text)) == [Fault.NONE]
    lines = [{**PLACE, "tst": AT_S}, {"points": [None, {**PLACE, "tst": AT_S + 1}]}]
    text = "\n".join(map(json.dumps, lines))
    assert faults(read_file(tmp_path, "a.jsonl", text)) == [Fault.NONE, Fault.LINE, Fault.NONE]


CLOCK = "08:00:00"
DATED = [
    ({"date": "2024-05-01", "time": CLOCK}, {}),
    ({"date": "2024-05-01T00:00:00", "time": "1970-01-01 08:00"}, {}),
    ({"date": 20240501, "time": "080000"}, {}),
    ({"day": "1/5/2024", "at": "8.00"}, {"date": "day", "time_format": "%d/%m/%Y %H.%M"}),
    ({"date": "never", "time": AT}, {}),
]


@pytest.mark.parametrize(("fields", "options"), DATED)
@pytest.mark.parametrize("name", ["a.json", "a.geojson"])
def test_a_date_may_be_in_another_member(
    tmp_path: Path, name: str, fields: dict[str, Any], options: dict[str, Any]
) -> None:
    top: Any = [{**PLACE, **fields}]
    if name == "a.geojson":
        place = {"type": "Point", "coordinates": [11.5, 48.1]}
        top = {"type": "Feature", "geometry": place, "properties": fields}
    (tmp_path / name).write_text(json.dumps(top))
    (source,) = find_sources([str(tmp_path / name)])
    batch = read(source, Columns(**options))
    assert (faults(batch), batch.at_us.tolist()) == ([Fault.NONE], [AT_S * 1_000_000])


@pytest.mark.parametrize("options", [{}, {"date": "day"}])
def test_a_clock_without_a_date_says_that_it_has_none(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{**PLACE, "time": CLOCK}]))
    (source,) = find_sources([str(tmp_path / "a.json")])
    assert faults(read(source, Columns(**options))) == [Fault.NO_DATE]
