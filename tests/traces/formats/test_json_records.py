"""Lists of JSON objects, as apps and services write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("place", [{"lat": None, "lon": None}, {"lat": 1.0, "lon": None}])
def test_a_place_that_is_null_is_no_place(tmp_path: Path, place: dict[str, Any]) -> None:
    lines = [{**one, "tst": AT_S, "_type": "location"} for one in (PLACE, place)]
    text = "\n".join(map(json.dumps, lines))
    assert faults(read_file(tmp_path, "a.jsonl", text)) == [Fault.NONE, Fault.LAT]


def test_lists_of_texts_are_of_an_event(tmp_path: Path) -> None:
    lines = [{**PLACE, "tst": AT_S}, {"event": "shopping", "items": ["milk"]}]
    text = "\n".join(map(json.dumps, lines))
    assert faults(read_file(tmp_path, "a.jsonl", text)) == [Fault.NONE]
