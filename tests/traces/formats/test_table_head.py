"""The header of a table is found below what loggers write above it; rows of units are no data."""

from __future__ import annotations

import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from hereish.errors import HereishError
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources
from hereish.traces.faults import Fault
from hereish.traces.formats import _text_parts, delimited
from hereish.traces.formats.base import Source
from hereish.traces.table import RowBatch

HEADER = "time,lat,lon,speed"
ROWS = [f"2024-06-15T10:30:0{i}Z,60.{i},25.{i},1" for i in range(3)]
PREAMBLES = [
    "Some Logger v1.2",
    "# made by hand\n\nSome Logger",
    "Device:,X\nStart:,2024-06-15\nLatitude:,not told",
    'Title "of a track',
    "My log\nColumns: time,lat,lon",
    "\n".join(f"setting {i};{i}" for i in range(28)),
    "My log\nlat,lon\n\n\n",  # names that no row follows
    "key,value,unit\nbattery,80,%",
]


def table(folder: Path, content: str, **columns: Any) -> RowBatch:
    path = folder / "in.csv"
    path.write_text(content, encoding="utf-8")
    (batch,) = delimited.read(Source(path, delimited.FORMAT, path), Columns(**columns))
    return batch


@pytest.mark.parametrize("before", PREAMBLES)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_header_is_found_below_other_lines(tmp_path: Path, before: str, delimiter: str) -> None:
    lines = [line.replace(",", delimiter) for line in (HEADER, *ROWS)]
    batch = table(tmp_path, "\n".join([before, *lines]) + "\n")
    assert batch.lat.tolist() == [60.0, 60.1, 60.2]
    first = before.count("\n") + 3
    assert batch.line.tolist() == [first, first + 1, first + 2]


@pytest.mark.parametrize(
    "content",
    [
        "\n".join(["x"] * 30 + [HEADER, *ROWS]),  # too far below
        "\n".join(["a title", HEADER]),  # no row follows
        "\n".join(["a title", HEADER, "60", "61", *ROWS]),
        "\n".join(["a title", *ROWS]),
    ],
)
def test_what_is_no_header_is_not_taken_for_one(tmp_path: Path, content: str) -> None:
    with pytest.raises(HereishError) as wrong:
        table(tmp_path, content)
    assert "60." not in str(wrong.value)


def test_a_first_line_that_names_places_is_the_header_whatever_follows(tmp_path: Path) -> None:
    text = "\n".join([HEADER, "time,lat,lon,other", ROWS[0]])
    assert table(tmp_path, text).fault.tolist() == [Fault.NONE]  # a row without any digit
    text = "\n".join([HEADER, ROWS[0], HEADER])
    assert table(tmp_path, text).fault.tolist() == [Fault.NONE, Fault.TIME]


def test_options_name_the_columns_of_a_header_below(tmp_path: Path) -> None:
    text = "\n".join(["a title", "when,y,x,v", *ROWS])
    batch = table(tmp_path, text, time="when", lat="y", lon="x")
    assert batch.lat.tolist() == [60.0, 60.1, 60.2]


@pytest.mark.parametrize(
    ("units", "skipped"),
    [
        (",deg,deg,m/s", True),
        ("UTC,°,°,km2", True),
        ("(s),(deg),(deg),", True),
        (",,,m/s", False),  # nothing in its place: a row that lost it
        ("s,deg,25.0,m", False),
        ("2024-06-15T10:30:00Z,deg,deg,m", False),
        ("utc,deg,deg", False),  # not as many fields
    ],
)
def test_a_row_of_units_is_no_data(tmp_path: Path, units: str, skipped: bool) -> None:
    batch = table(tmp_path, "\n".join([HEADER, units, *ROWS]))
    assert len(batch) == 3 + (not skipped)
    assert batch.line.tolist()[-3:] == [3, 4, 5]
    later = table(tmp_path, "\n".join([HEADER, *ROWS, units]))
    assert len(later) == 4


def test_a_large_table_is_divided_below_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("WORTH_BYTES", 1), ("LEAST_BYTES", 400), ("MOST_BYTES", 900)):
        monkeypatch.setattr(_text_parts, name, size)
    monkeypatch.setattr(_text_parts, "_LOOK_BYTES", 64)
    rows = [
        f"u{user},2024-06-15T10:{i:02}:00Z,{60 + i / 100},25"
        for user in range(9)
        for i in range(20)
    ]
    rows[40] = "u2,soon,deg,deg"  # the first of its user, and maybe of a part
    head = ["Some Logger", "", "user,time,lat,lon", "name,utc,deg,deg"]
    path = tmp_path / "in.csv"
    path.write_text("\n".join([*head, *rows]) + "\n")
    (source,) = find_sources([str(path)])
    parts = delimited.divide(source, Columns(), 4)
    assert len(parts) > 2
    found = []
    for part in parts:
        for batch in delimited.read(source.__class__(**{**vars(source), "part": part}), Columns()):
            assert batch.user is not None
            found += list(zip(batch.user.values(), batch.fault.tolist(), strict=True))
    (whole,) = delimited.read(source, Columns())
    assert whole.user is not None
    assert found == list(zip(whole.user.values(), whole.fault.tolist(), strict=True))
    assert sum(fault != 0 for _, fault in found) == 1


def test_such_a_table_is_known_by_its_content_and_on_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(["Some Logger v1.2", HEADER, *ROWS]) + "\n"
    (tmp_path / "log.txt").write_text(text)
    (source,) = find_sources([str(tmp_path / "log.txt")])
    assert source.format.name == "csv"
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
    (source,) = find_sources(["-"])
    (batch,) = source.format.read(source, Columns())
    assert len(batch) == 3
