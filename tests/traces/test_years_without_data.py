"""A history may have years without a row; a trace that a file tells may not."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path

import pytest

import hereish
from hereish.errors import PointError
from hereish.traces import pipeline
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.faults import FAULT_REASONS, FAULT_TEXTS, Fault
from hereish.traces.files import load_rows, sanitize_files
from hereish.traces.formats import _text
from hereish.traces.pipeline import Pipeline

DAILY = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000, window=hereish.Day("UTC"))
TIMES = [f"{year}-05-05T12:0{i}:00Z" for year in (2012, 2019, 2026) for i in range(3)]
ROWS = "".join(f"ann,{time},60.1,24.9\n" for time in TIMES)


def small_batches(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """A file comes in batches of so many rows, each a unit of its own."""
    monkeypatch.setattr(pipeline, "BATCH_ROWS", rows)
    monkeypatch.setattr(_text, "BATCH_ROWS", rows)
    monkeypatch.setattr(_text, "BLOCK_ROWS", min(rows, _text.BLOCK_ROWS))


def point(time: str) -> str:
    return (
        f'{{"type":"Feature","geometry":{{"type":"Point","coordinates":[24.9,60.1]}},'
        f'"properties":{{"time":"{time}"}}}}'
    )


def place(time: str) -> str:
    return (
        f"<Placemark><TimeStamp><when>{time}</when></TimeStamp>"
        "<Point><coordinates>24.9,60.1</coordinates></Point></Placemark>"
    )


def signal(time: str) -> str:
    return f'{{"latitudeE7":601000000,"longitudeE7":249000000,"timestamp":"{time}"}}'


def record(time: str) -> str:
    return f'{{"lat":60.1,"lon":24.9,"timestamp":"{time}"}}'


HISTORIES = {
    "in.csv": f"user,time,lat,lon\n{ROWS}",
    "blank.csv": "time,trace,lat,lon\n" + "".join(f"{time},,60.1,24.9\n" for time in TIMES),
    "in.geojson": f'{{"type":"FeatureCollection","features":[{",".join(map(point, TIMES))}]}}',
    "in.kml": f"<kml><Document>{''.join(map(place, TIMES))}</Document></kml>",
    "google.json": f'{{"locations":[{",".join(map(signal, TIMES))}]}}',
    "records.json": f"[{','.join(map(record, TIMES))}]",
}


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_with_years_without_data_is_read_whole(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(HISTORIES[name])
    summary = sanitize_files([tmp_path / name], tmp_path / "out.csv", DAILY)
    assert (summary.points, summary.bad) == (len(TIMES), {})
    assert len(load_rows([str(tmp_path / name)], Columns())) == len(TIMES)


def test_it_is_one_pass_however_few_rows_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that rise are those of a sorted file, whatever lies between them."""
    small_batches(monkeypatch, 2)

    def again(*_: object) -> None:
        raise AssertionError("the file is read once more")

    monkeypatch.setattr(Pipeline, "begin_pass", again)
    (tmp_path / "in.csv").write_text(HISTORIES["in.csv"])
    summary = sanitize_files([tmp_path / "in.csv"], tmp_path / "out.csv", DAILY)
    assert (summary.points, summary.bad) == (len(TIMES), {})


@pytest.mark.parametrize("rows", [2, 1 << 20])
def test_in_a_trace_the_answer_does_not_depend_on_how_many_rows_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    small_batches(monkeypatch, rows)
    named = [f"ann,t,{time},60.1,24.9\n" for time in TIMES[:4]]
    free = [f"ann,,{time},60.1,24.9\n" for time in TIMES]
    (tmp_path / "in.csv").write_text("user,trace,time,lat,lon\n" + "".join(named + free))
    summary = sanitize_files([tmp_path / "in.csv"], tmp_path / "out.csv", DAILY, drop_bad=True)
    assert (summary.points, summary.bad) == (13, {FAULT_REASONS[Fault.JUMP]: 1})


def test_the_remedy_for_a_trace_of_a_table_reads_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("trace,time,lat,lon\n" + "".join(f"t,{t},60.1,24.9\n" for t in TIMES))
    with pytest.raises(PointError, match="--trace ''"):
        sanitize_files([path], tmp_path / "out.csv", DAILY)
    summary = sanitize_files([path], tmp_path / "out.csv", DAILY, columns=Columns(trace=""))
    assert (summary.points, summary.bad) == (len(TIMES), {})


def test_a_track_is_told_to_be_divided(tmp_path: Path) -> None:
    points = "".join(f'<trkpt lat="60" lon="25"><time>{t}</time></trkpt>' for t in TIMES)
    path = tmp_path / "in.gpx"
    path.write_text(f"<gpx><trk><trkseg>{points}</trkseg></trk></gpx>")
    with pytest.raises(PointError) as wrong:
        sanitize_files([path], tmp_path / "out.csv", DAILY)
    assert FAULT_TEXTS[Fault.JUMP].remedy_in(columns=False) in str(wrong.value)
    assert "gpsbabel -x track,pack,split=365d" in str(wrong.value)


def test_all_of_a_history_is_one_trace_for_the_window(tmp_path: Path) -> None:
    m = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000, window=EachTrace())
    (tmp_path / "in.csv").write_text(HISTORIES["in.csv"])
    summary = sanitize_files([tmp_path / "in.csv"], tmp_path / "out.csv", m)
    assert (summary.points, summary.traces, summary.bad) == (len(TIMES), 1, {})


def test_standard_input_is_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO(HISTORIES["in.csv"].encode()))
    monkeypatch.setattr(sys, "stdin", text)
    assert sanitize_files(["-"], tmp_path / "out.csv", DAILY).bad == {}
