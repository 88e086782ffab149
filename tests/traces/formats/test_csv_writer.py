"""Lines of CSV are put together by hand, and are those of `csv.writer`, to the byte."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hereish.traces.columns import Layout
from hereish.traces.formats._csv_writer import CsvWriter
from hereish.traces.formats._times import format_utc
from hereish.traces.table import Ids, ReleasedRows

TEXTS = st.text(st.sampled_from("aé0,;\t\"'\r\n |-.\\ \ud800"), max_size=4)
NUMBERS = st.integers(-(10**20), 10**20) | st.floats()
VALUES = TEXTS | NUMBERS | st.booleans() | st.none()
COLUMNS = st.lists(VALUES, min_size=5, max_size=5) | st.lists(NUMBERS, min_size=5, max_size=5)


def released(users: list[Any], kept: list[Any]) -> ReleasedRows:
    column = np.empty(5, dtype=object)
    column[:] = kept
    numbers = np.random.default_rng(1).normal(size=(3, 5)) * [[1e-300], [1.0], [1e20]]
    return ReleasedRows(
        at_us=np.arange(5) * 1_500_000,
        lat=numbers[0],
        lon=numbers[1],
        kind=np.array([0, 1, 2, 0, 1], dtype=np.uint8),
        cost=numbers[2],
        user=Ids.of([repr(user) for user in users]) if users else None,
        trace=Ids(np.array([2, 1, 0, 1, 2]), users),
        kept={"kept": column},
    )


def by_csv_writer(rows: ReleasedRows, delimiter: str) -> bytes:
    """As it was written before: the lines of `csv.writer`, and `\n` in place of its `\r\n`."""
    columns = [
        *([rows.user.values()] if rows.user else []),
        *([rows.trace.values()] if rows.trace else []),
        format_utc(rows.at_us),
        rows.lat.tolist(),
        rows.lon.tolist(),
        rows.kind_names(),
        rows.cost.tolist(),
        rows.kept["kept"].tolist(),
    ]
    lines = []
    for record in zip(*columns, strict=True):
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\r\n", delimiter=delimiter).writerow(record)
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines).encode(errors="backslashreplace")


@pytest.mark.parametrize("delimiter", [",", "\t"])
@given(COLUMNS, COLUMNS)
def test_lines_are_those_of_csv_writer(delimiter: str, users: list[Any], kept: list[Any]) -> None:
    rows = released(users, kept)
    file = io.BytesIO()
    writer = CsvWriter(file, Layout(user="who, when", kept=("kept",)), delimiter)
    writer.write(rows)
    writer.finish()
    header, rest = file.getvalue().split(b"\n", 1)
    assert rest == by_csv_writer(rows, delimiter)
    quoted = b'"who, when"' if delimiter == "," else b"who, when"
    assert header.split(delimiter.encode())[0] == quoted.split(delimiter.encode())[0]


def test_rows_without_a_release_leave_a_header() -> None:
    file = io.BytesIO()
    CsvWriter(file, Layout()).finish()
    assert file.getvalue() == b"time,lat,lon,kind,cost\n"
