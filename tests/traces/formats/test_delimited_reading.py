"""CSV files are read: columns, times, numbers, faults, and what is not a table."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hereish.errors import ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import Fault, UnreadableFileError
from hereish.traces.formats import _degrees, _encodings, _lines, _text, delimited
from hereish.traces.formats._times import TimeParser
from hereish.traces.formats.base import Source
from tests.support.csv_samples import (
    HEADER,
    QUICK,
    ROW,
    csv_of,
    error,
    one,
    read,
    released,
    written,
)
from tests.support.paths import DATA


def test_the_real_window_is_read_as_pandas_reads_it_and_comes_back(tmp_path: Path) -> None:
    path = DATA / "tdrive-window.csv.gz"
    if not path.is_file():
        pytest.skip(f"needs {path.name}, which is not ours to ship")
    frame = pd.read_csv(path, dtype={"id": str}, parse_dates=["t"])
    (batch,) = read(path, user="id")
    assert len(batch) == len(frame) == gzip.decompress(path.read_bytes()).count(b"\n") - 1
    assert not batch.fault.any()
    assert batch.user is not None
    assert batch.trace is None
    assert batch.user.values() == frame["id"].tolist()
    assert np.array_equal(batch.at_us, frame["t"].to_numpy("datetime64[us]").astype(np.int64))
    assert np.array_equal(batch.lat, frame["lat"])
    assert np.array_equal(batch.lon, frame["lon"])
    assert np.array_equal(batch.line, np.arange(len(frame)) + 2)
    assert (batch.layout.user, batch.layout.time, batch.layout.lat) == ("id", "t", "lat")
    assert batch.done == 1.0
    again = one(tmp_path, csv_of([released(batch)], batch.layout), user="id")
    assert again.user is not None
    assert again.user.values() == batch.user.values()
    for name in ("at_us", "lat", "lon"):
        assert np.array_equal(getattr(again, name), getattr(batch, name))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("anna,2024-05-01T08:00:00Z,60.17,24.94", Fault.NONE),
        (" anna ,  2024-05-01T08:00:00Z , 60.17 , 24.94", Fault.NONE),
        ("anna,2024-05-01T08:00:00Z,400,999", Fault.NONE),  # ranges are for a later stage
        ("anna,2024-05-01T08:00:00Z,60.17", Fault.LINE),
        ("anna,2024-05-01T08:00:00Z,60.17,24.94,7", Fault.LINE),
        ("x", Fault.LINE),
        (",2024-05-01T08:00:00Z,60.17,24.94", Fault.USER),
        ("  ,never,?,?", Fault.USER),
        ("anna,,60.17,24.94", Fault.TIME),
        ("anna,yesterday,60.17,24.94", Fault.TIME),
        ("anna,2024-13-01T08:00:00Z,60.17,24.94", Fault.TIME),
        ("anna,2024-05-01T08:00:00,60.17,24.94", Fault.ZONE),
        ("anna,2024-05-01T08:00:00Z,,24.94", Fault.LAT),
        ("anna,2024-05-01T08:00:00Z,nan,24.94", Fault.LAT),
        ("anna,2024-05-01T08:00:00Z,6_0,24.94", Fault.LAT),
        ("anna,2024-05-01T08:00:00Z,0x3c,24.94", Fault.LAT),
        ("anna,2024-05-01T08:00:00Z,٦٠,24.94", Fault.LAT),
        ("anna,2024-05-01T08:00:00Z,60.17E,24.94", Fault.LAT),
        ("anna,2024-05-01T08:00:00Z,60.17,", Fault.LON),
        ("anna,2024-05-01T08:00:00Z,60.17,-inf", Fault.LON),
        ("anna,2024-05-01T08:00:00Z,60.17,1e999", Fault.LON),
        ("anna,2024-05-01T08:00:00Z,?,?", Fault.LAT),
    ],
)
def test_a_bad_row_has_its_fault_and_its_line_and_the_others_stay(
    tmp_path: Path, row: str, fault: Fault
) -> None:
    batch = one(tmp_path, HEADER + ROW + row + "\n" + ROW)
    assert batch.fault.tolist() == [Fault.NONE, fault, Fault.NONE]
    assert batch.line.tolist() == [2, 3, 4]
    assert batch.lat[[0, 2]].tolist() == [60.17, 60.17]
    assert batch.lon[[0, 2]].tolist() == [24.94, 24.94]


@pytest.mark.parametrize("row", [",,,", " , ,, ", ",", ",,,,", '"","","",""', '"",""'])
def test_rows_without_anything_are_passed_over(tmp_path: Path, row: str) -> None:
    """As spreadsheets write them at the end."""
    batch = one(tmp_path, HEADER + ROW + row + "\n" + ROW)
    assert batch.fault.tolist() == [Fault.NONE] * 2
    assert batch.line.tolist() == [2, 4]


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    noted = '"two\nlines",2024-05-01T08:00:00Z,60.17,24.94\n'
    text = "\n\n" + HEADER + "\n" + ROW + noted + "   \n\n" + ROW
    for end in ("\n", "\r\n", "\r"):
        batch = one(tmp_path, text.replace("\n", end))
        assert batch.line.tolist() == [5, 7, 10]
        assert not batch.fault.any()
        assert batch.user is not None
        assert batch.user.values() == ["anna", f"two{end}lines", "anna"]


def test_times_are_iso_or_unix_and_naive_ones_are_of_the_zone_given(tmp_path: Path) -> None:
    head = "time,lat,lon\n"
    for text in ("2024-05-01T08:00:00Z", "2024-05-01 08:00:00", "1714550400", "1714550400000"):
        assert one(tmp_path, f"{head}{text},1,2\n").at_us.tolist() == [1_714_550_400_000_000]
    helsinki = ZoneInfo("Europe/Helsinki")
    local = one(tmp_path, head + "2024-05-01 11:00:00,1,2\n2024-01-01 02:00,1,2\n", zone=helsinki)
    assert local.at_us.tolist() == [1_714_550_400_000_000, 1_704_067_200_000_000]
    assert not local.fault.any()


STAMPS = st.sampled_from(
    [
        "2024-05-01T08:00:00Z",
        "2024-05-01T08:00:00.123456+00:00",
        "2024-05-01 11:00:00+03:00",
        "2024-12-01T10:00:00+02:00",
        "2024-05-01 08:00:00",
        "1969-12-31",
        "0001-01-01T00:00:00+14:00",
        "20240501",
        "20240501_08",
        "2024-W18-3",
        "123e-4",
        "1714550400.5",
        " 2024-05-01T08:00:00Z",
        "2024-05-01T08:00:61Z",
        "nan",
        "",
    ]
)


@QUICK
@given(
    st.one_of(st.lists(STAMPS, min_size=1, max_size=6), st.lists(STAMPS, min_size=1, max_size=1)),
    st.sampled_from([None, ZoneInfo("Europe/Helsinki")]),
    st.integers(1, 4),
)
def test_many_times_at_once_are_parsed_as_one_by_one(
    texts: list[str], zone: ZoneInfo | None, each: int
) -> None:
    texts = [text for text in texts for _ in range(each)]
    single, blocks = TimeParser(zone), TimeParser(zone)
    wanted = [single.parse(text) for text in texts]
    settled = np.array([time if isinstance(time, Fault) else 0 for time in wanted], dtype=np.uint8)
    single.mark_missing_offsets(settled)
    blocks_of = [texts[begin : begin + each] for begin in range(0, len(texts), each)]
    at_us, fault = map(
        np.concatenate,
        zip(*(_text.parse_times(block, blocks) for block in blocks_of), strict=True),
    )
    blocks.mark_missing_offsets(fault)
    assert fault.tolist() == settled.tolist()
    assert at_us[fault == 0].tolist() == [
        time for time, wrong in zip(wanted, settled.tolist(), strict=True) if not wrong
    ]


@QUICK
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_it_was_written(value: float) -> None:
    assert _degrees.parse_number(repr(value)) == value
    assert _degrees.parse_number(f" {value!r}\t") == value


@QUICK
@given(st.lists(st.one_of(st.text("0123456789._-+eEnaif x٣", max_size=6), st.just("1.5"))))
def test_many_numbers_at_once_are_those_of_one_by_one(texts: list[str]) -> None:
    wanted = [_degrees.parse_degrees(text, "lat") for text in texts]
    found = _degrees.parse_all_degrees(texts, "lat").tolist()
    assert [None if value != value else value for value in found] == wanted
    numbers = [text for text in texts if _degrees.parse_number(text)]
    assert all(set(text) <= set("0123456789.-+eE ") for text in numbers)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_told_by_the_header(tmp_path: Path, delimiter: str) -> None:
    text = HEADER.replace(",", delimiter) + ROW.replace(",", delimiter)
    batch = one(tmp_path, text)
    assert not batch.fault.any()
    assert batch.lat.tolist() == [60.17]


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    batch = one(tmp_path, "time;lat;lon\n2024-05-01;60,17;24.94\n2024-05-01;60.17;24,94\n")
    assert (batch.lat.tolist(), batch.lon.tolist()) == ([60.17] * 2, [24.94] * 2)
    batch = one(tmp_path, 'time,lat,lon\n2024-05-01,"60,17","24,94"\n2024-05-01,60,17,24,94\n')
    assert batch.fault.tolist() == [Fault.NONE, Fault.LINE]


def test_columns_are_found_in_any_order_and_the_rest_stays_behind(tmp_path: Path) -> None:
    text = (
        "speed, Longitude ,note,Latitude,when,who,Trip\n"
        "3,24.94,home,60.17,2024-05-01,anna,\n"
        '4,24.95,"a, b",60.18,2024-05-02,ben,7\n'
    )
    batch = one(tmp_path, text, user="who", time="when", keep=("note",))
    assert batch.layout == Layout("who", "Trip", "when", "Latitude", "Longitude")
    assert batch.user is not None
    assert batch.trace is not None
    assert batch.user.values() == ["anna", "ben"]
    assert batch.trace.values() == ["", "7"]
    assert {name: column.tolist() for name, column in batch.kept.items()} == {
        "note": ["home", "a, b"]
    }
    assert batch.lat.tolist() == [60.17, 60.18]
    assert batch.lon.tolist() == [24.94, 24.95]
    assert one(tmp_path, "t,lat,lon\n2024-05-01,1,2\n").user is None


@pytest.mark.parametrize(
    ("header", "columns", "words"),
    [
        ("time,lat", {}, "lon"),
        ("time,lat,lat,lon", {}, "2 columns are called 'lat'"),
        ("time,lat,latitude,lon", {}, "which is it"),
        ("time,lat,lon", {"user": "who"}, "'who'"),
        ("time,lat,lon", {"keep": ("note",)}, "'note'"),
        ("time,lat,lon,note,note", {"keep": ("note",)}, "2 columns"),
        ("time,lat,lon", {"keep": ("lat",)}, "must differ"),  # it would be the true one
        ("time,lat,lon", {"lat": "lon"}, "must differ"),
    ],
)
def test_columns_that_cannot_be_told_are_an_error(
    tmp_path: Path, header: str, columns: dict[str, Any], words: str
) -> None:
    row = ",".join(["2024-05-01", "60.1712345", "24.9412345", "x", "y"][: header.count(",") + 1])
    wrong = error(tmp_path, f"{header}\n{row}\n", **columns)
    assert isinstance(wrong, ParameterError)
    assert words in str(wrong)
    assert "12345" not in str(wrong)


@pytest.mark.parametrize(
    "first",
    [
        "1,1714550400,60.1712345,24.9412345",
        "1,2024-05-01 08:00:00,24.9412345,60.1712345",
        "anna,2024-05-01,60.1712345N,24.9412345E",
        "anna;2024-05-01;60,1712345;24,9412345",
        "a,b,60°10'12345,24°56'12345",
        "user,time,lat,lonanna,2024-05-01,601712345x,241712345y",
    ],
)
def test_a_first_row_of_data_is_never_taken_for_names(tmp_path: Path, first: str) -> None:
    wrong = error(tmp_path, f"{first}\n{first}\n")
    assert isinstance(wrong, UnreadableFileError)
    assert wrong.line == 1
    assert "header" in str(wrong)
    assert "12345" not in str(wrong)


def test_names_with_a_few_digits_are_names(tmp_path: Path) -> None:
    text = "PM2.5,lat_wgs84,epsg4326_x,t\n3,1,2,2024-05-01\n"
    batch = one(tmp_path, text, lat="lat_wgs84", lon="epsg4326_x")
    assert (batch.lat.tolist(), batch.lon.tolist()) == ([1.0], [2.0])


@pytest.mark.parametrize(
    ("content", "words", "line"),
    [
        (b"", "empty", None),
        (b"\xef\xbb\xbf", "empty", None),
        (b" \n\r\n", "empty", None),
        (HEADER.encode(), "no rows", None),
        (b"user,time,lat,lon", "no rows", None),
        ((HEADER + ROW).encode("utf-16") + b"x", "UTF-16", None),
        ((HEADER + "Zoë" + ROW).encode() + b"J\xf6rg,2024-05-01,1,2\n", "UTF-8", 3),
        ((HEADER + ROW).encode() + b"\0\n", "UTF-8", 3),
        ((HEADER + ROW + '"anna,1,2\n' + ROW).encode(), "quotes", 3),
        ((HEADER + ROW + '"anna"x,1,2,3\n').encode(), "quotes", 3),
        ((HEADER + ROW + '"anna\n' + ROW + 'x",1,2\n' + ROW).encode(), "quotes", 3),
        ((HEADER + ROW + "a" * 200_000 + ",1,2,3\n").encode(), "too long", 3),
        ((HEADER + ROW + "a" * 2_000_000).encode(), "too long", 3),
        (b'"' + HEADER.encode(), "quotes", 1),
    ],
)
def test_what_is_no_table_is_said_with_its_line(
    tmp_path: Path, content: bytes, words: str, line: int | None
) -> None:
    wrong = error(tmp_path, content)
    assert isinstance(wrong, UnreadableFileError)
    assert words in str(wrong)
    assert wrong.line == line


def test_rows_before_the_break_are_handed_on(tmp_path: Path) -> None:
    path = written(tmp_path, (HEADER + ROW * 5).encode() + b"\xff\0\n" + ROW.encode())
    found = delimited.read(Source(path, delimited.FORMAT, path), Columns())
    assert len(next(found)) == 5
    with pytest.raises(UnreadableFileError, match="line 7"):
        next(found)


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert one(tmp_path, b"\xef\xbb\xbf" + (HEADER + ROW).encode()).layout.user == "user"


def test_a_damaged_gzip_file_is_unreadable(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = "".join(f"u,2024-05-01,{x:.6f},{x:.6f}\n" for x in rng.random(60_000))
    packed = gzip.compress((HEADER + rows).encode())
    for wrong in (packed[: len(packed) // 2], packed[:100_000] + b"!!!!" + packed[100_004:], b"?"):
        with pytest.raises(UnreadableFileError, match="gzip"):
            read(written(tmp_path, wrong, "in.csv.gz"))
    assert sum(map(len, read(written(tmp_path, packed, "in.csv.gz")))) == 60_000


def mixed(count: int) -> str:
    names = ["anna", "ben", "", "carla"]
    rows = [
        f"{names[i % 4]},2024-05-01T00:{i % 60:02}:00Z,{i},{'x' if i % 7 == 0 else -i},n{i}"
        for i in range(count)
    ]
    rows[5] = "broken"
    return "\r\n".join(["user,time,lat,lon,note", *rows])


def test_a_file_in_many_pieces_and_chunks_is_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, mixed(50))
    (whole,) = read(path, keep=("note",))
    monkeypatch.setattr(_text, "BATCH_ROWS", 10)
    monkeypatch.setattr(_text, "BLOCK_ROWS", 4)
    for chunk in (1, 2, 3, 5, 17, 100, 10_000):
        monkeypatch.setattr(_encodings, "CHUNK_BYTES", chunk)
        parts = read(path, keep=("note",))
        assert max(map(len, parts)) <= 10
        assert len(parts) > 4
        for name in ("line", "at_us", "lat", "lon", "fault"):
            concat_released = np.concatenate([getattr(part, name) for part in parts])
            assert np.array_equal(concat_released, getattr(whole, name), equal_nan=True)
        users = [name for part in parts if part.user for name in part.user.values()]
        assert users == (whole.user and whole.user.values())
        notes = np.concatenate([part.kept["note"] for part in parts])
        assert notes.tolist() == whole.kept["note"].tolist()
        dones = [part.done for part in parts]
        assert dones == sorted(dones)
        assert dones[-1] == 1.0


def test_progress_is_told_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_text, "BATCH_ROWS", 1000)
    monkeypatch.setattr(_text, "BLOCK_ROWS", 500)
    monkeypatch.setattr(_encodings, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(_lines, "BLOCK_BYTES", 1000)
    dones = [batch.done for batch in read(written(tmp_path, HEADER + ROW * 4000))]
    assert dones == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.15)


def test_standard_input_is_read_without_seeking() -> None:
    program = (
        "from pathlib import Path\n"
        "from hereish.traces.columns import Columns\n"
        "from hereish.traces.formats import delimited\n"
        "from hereish.traces.formats.base import Source\n"
        "import sys\n"
        "source = Source(None, delimited.FORMAT, Path('stdin.csv'))\n"
        "(batch,) = delimited.read(source, Columns())\n"
        "print(len(batch), batch.fault.sum(), batch.done, sys.stdin.buffer.closed)\n"
    )
    ran = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-c", program], input=(HEADER + ROW * 3).encode(), capture_output=True
    )
    assert (ran.stdout.decode().split(), ran.stderr) == (["3", "0", "0.0", "False"], b"")
