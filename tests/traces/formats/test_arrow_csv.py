"""Blocks of CSV that Arrow reads mean what they mean row by row: rows, faults and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.errors import HereishError
from hereish.traces.columns import Columns
from hereish.traces.faults import Fault
from hereish.traces.formats import _arrow_csv, _encodings, _lines, _text, delimited
from hereish.traces.formats._degrees import parse_degrees
from hereish.traces.formats._times import TimeParser
from hereish.traces.formats.base import Source
from tests.support.csv_samples import written
from tests.support.paths import DATA
from tests.traces.formats.test_fuzz_text import CSV, MUTATIONS, damaged, tell_nothing

pytest.importorskip("pyarrow")
COMPARE = settings(derandomize=True, deadline=None, max_examples=400)

LATS = [
    *("60.17", "60.1712345", "-33.9", "+60.2", "0", "-0.0", "6e1", "91", "181.5", "1e400"),
    *(
        "",
        " ",
        "NA",
        "nan",
        "NaN(1)",
        "-",
        "None",
        "inf",
        "x",
        "60,17",
        "60_1",
        "0x10",
        "٦٠",
        "1.5\x0b",
    ),
    *("60.17N", "60.17S", "N 60 10.2", "60°10'12\"N", " 60.17", "60.17\t", '"60.17"', "601700000"),
]
TIMES = [
    *("2024-05-01T08:00:{:02}Z", "2024-05-01 08:01:{:02}", "2024-05-01T08:02:{:02}.123456+03:00"),
    *("2024-05-01T08:03:{:02}.1234567Z", "17145503{:02}", "17145503{:02}.25", "17145503{:02}000"),
    *("2024/05/01 08:04:{:02}", "20240501", "202405010805{:02}", "1.5.2024 08:06:{:02}", "45413.5"),
    *(
        "0000-01-01T00:00:{:02}Z",
        "0001-01-01T00:00:{:02}Z",
        "9999-12-31T23:59:{:02}-03:30",
        "08:07:{:02}",
    ),
    *(
        "",
        "NA",
        "-",
        "5/6/2024",
        "2024-05-01",
        "2024-05-01T08:08:{:02} EST",
        "2024-05-01T24:00:{:02}Z",
    ),
    *(
        "1899-05-01T08:00:{:02}",
        " 2024-05-01T08:09:{:02}Z ",
        '"2024-05-01T08:10:{:02}Z"',
        "1714550300,{:02}",
    ),
]
USERS = [
    "anna",
    "007",
    "7",
    "",
    " ",
    "NULL",
    "ä",
    '"b,c"',
    '"d""e"',
    '"f\ng"',
    'h"i',
    "#j",
    '""',
    "\ufeffk",
]
ODD_LINES = [
    *(
        "",
        "   ",
        "# a comment",
        "anna",
        "anna,2024-05-01T08:00:00Z,60.17",
        '"',
        'a,"b"c,1,2',
        ",,,",
        ", ,,",
        '"","","",""',
    ),
    *(
        "a,2024-05-01T08:00:00Z,60.17,24.9,,",
        "a,2024-05-01T08:00:00Z,60.17,24.9,x",
        ' "a",1,2,3',
        "\r",
    ),
]
HEADERS: dict[str, dict[str, Any]] = {
    "user,time,lat,lon": {},
    "lon,lat,note,time": {"keep": ("note",)},
    "user,trip,time,latitude,longitude": {"trace": "trip"},
    "user,time,lat,ns,lon,ew": {},
    "user,date,time,lat,lon": {},
    "user,time,lat_e7,lon_e7": {},
    "device_code,time,lat,lon,extra": {},
    "user,time,lat,lon,": {},
    "user,date,lat,lon": {},
}

# What loggers write before the header, and between it and the rows.
PREAMBLES = [
    *[""] * 12,
    *("Some Logger v1.2", "# made by hand", "Device:,X", "\n\nStart: 8:00,,\n# a\n"),
    *("Columns: time,lat,lon", "\n".join(f"setting {i},{i}" for i in range(28)), "x\n" * 30),
]
UNITS = [*[""] * 6, "of all columns", "deg"]

OPTIONS: list[dict[str, Any]] = [
    *({}, {}, {}, {"zone": ZoneInfo("Europe/Helsinki")}),
    *({"time_format": "s"}, {"time_format": "ms"}, {"time_format": "%Y-%m-%d %H:%M:%S"}),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """A file most of which is alike, with a few values that are not, and how it is read."""
    header = draw(st.sampled_from(sorted(HEADERS)))
    options = dict(HEADERS[header])
    options |= draw(st.sampled_from(OPTIONS))
    usual = {"lat": draw(st.sampled_from(LATS)), "time": draw(st.sampled_from(TIMES))}
    odd = draw(
        st.dictionaries(
            st.integers(0, 60), st.sampled_from(["lat", "time", "user", "line"]), max_size=4
        )
    )
    before, units = draw(st.sampled_from(PREAMBLES)), draw(st.sampled_from(UNITS))
    lines = [*filter(None, [before]), header]
    if units:
        lines.append(",".join("" if name == "user" else units for name in header.split(",")))
    for number in range(draw(st.integers(0, 60))):
        what = odd.get(number)
        if what == "line":
            lines.append(draw(st.sampled_from(ODD_LINES)))
            continue
        lat = draw(st.sampled_from(LATS)) if what == "lat" else usual["lat"]
        at = draw(st.sampled_from(TIMES)) if what == "time" else usual["time"]
        user = draw(st.sampled_from(USERS)) if what == "user" else f"u{number % 3}"
        values = dict.fromkeys(("user", "device_code", "note"), user)
        values |= dict.fromkeys(("lat", "latitude", "lat_e7"), lat)
        values |= {"lon": "24.94", "longitude": "24.94", "lon_e7": "249400000", "ns": "N"}
        values |= {"ew": "E", "date": "2024-05-01", "time": at.format(number), "": ""}
        if "time" not in header:
            values["date"] = at.format(number)
        values |= {"trip": f"t{number // 9}", "extra": "x"}
        lines.append(",".join(values[name] for name in header.split(",")))
    end, delimiter = (
        draw(st.sampled_from(["\n", "\n", "\r\n", "\r"])),
        draw(st.sampled_from(",,,;\t|")),
    )
    text = end.join("\n".join(lines).split("\n")).replace(",", delimiter) + draw(
        st.sampled_from([end, ""])
    )
    encoding = draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    return text.encode(encoding, errors="replace"), options


def answers(path: Path, options: dict[str, Any], *, arrow: bool) -> tuple[list[Any], int]:
    """All that a reader says about a file, and how many blocks Arrow has read."""
    found: list[Any] = []
    blocks = 0
    with pytest.MonkeyPatch.context() as patch:
        # Small, so that blocks and batches end everywhere.
        patch.setattr(_encodings, "CHUNK_BYTES", 97)
        patch.setattr(_lines, "BLOCK_BYTES", 400)
        patch.setattr(_lines, "HEAD_LINES", 1)
        patch.setattr(_text, "BLOCK_ROWS", 4)
        patch.setattr(_text, "BATCH_ROWS", 21)
        patch.setattr(delimited, "WORTH_BYTES", 0)
        patch.setattr(_arrow_csv, "_ODD_ROWS", 3)
        if not arrow:
            patch.setattr(delimited, "find_spec", lambda _: None)
        own = _arrow_csv.ArrowReader.read

        def counted(*args: Any) -> Any:
            nonlocal blocks
            rows = own(*args)
            blocks += rows is not None
            return rows

        patch.setattr(_arrow_csv.ArrowReader, "read", counted)
        try:
            source = Source(path, delimited.FORMAT, Path(path.name))
            for batch in delimited.read(source, Columns(**options)):
                good = batch.fault == Fault.NONE
                ids = [None if one is None else one.values() for one in (batch.user, batch.trace)]
                columns = (batch.at_us[good], batch.lat[good], batch.lon[good])
                found.append((batch.line.tolist(), batch.fault.tolist(), *ids))
                found += [column.dtype.str + str(column.tolist()) for column in columns]
                found += [(name, column.tolist()) for name, column in batch.kept.items()]
                found.append(batch.layout)
        except HereishError as error:
            tell_nothing(error)
            found.append((type(error), str(error), vars(error)))
    return found, blocks


def same(path: Path, options: dict[str, Any]) -> int:
    """Compare both ways of reading; the number of blocks that Arrow has read."""
    ours, none = answers(path, options, arrow=False)
    arrows, blocks = answers(path, options, arrow=True)
    assert arrows == ours
    assert none == 0
    return blocks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def test_any_table_is_read_the_same_and_many_by_arrow(folder: Path) -> None:
    read_by_arrow: list[bool] = []

    @COMPARE
    @given(table=tables())
    def compare(table: tuple[bytes, dict[str, Any]]) -> None:
        read_by_arrow.append(same(written(folder, table[0]), table[1]) > 0)

    compare()
    assert sum(read_by_arrow) > len(read_by_arrow) / 3


@COMPARE
@given(mutations=MUTATIONS, plain=st.booleans())
def test_any_damage_is_read_the_same(folder: Path, mutations: Any, plain: bool) -> None:
    content = CSV.replace('"a ""b"",\nc"', "a") if plain else CSV
    same(written(folder, damaged(content.encode(), mutations)), {"keep": ("note",)})


@pytest.mark.parametrize("at", TIMES)
@pytest.mark.parametrize("lat", ["60.17", ""])
def test_every_spelling_of_a_time_means_the_same(tmp_path: Path, at: str, lat: str) -> None:
    rows = "".join(f"u;{at.format(n)};{lat};24.9\n" for n in range(40))
    path = written(tmp_path, "user;time;lat;lon\n" + rows)
    for options in ({}, {"zone": ZoneInfo("Europe/Helsinki")}, {"time_format": "s"}):
        assert same(path, options) > 0
    same(written(tmp_path, "user;date;lat;lon\n" + rows, "dates.csv"), {})


@pytest.mark.parametrize("lat", LATS)
def test_every_spelling_of_a_latitude_means_the_same(tmp_path: Path, lat: str) -> None:
    rows = "".join(f"u;2024-05-01T08:00:{n:02}Z;{lat};24.9\n" for n in range(40))
    same(written(tmp_path, "user;time;lat;lon\n" + rows), {})
    same(written(tmp_path, "user;time;lat_e7;lon\n" + rows, "e7.csv"), {})


@pytest.mark.parametrize("text", _arrow_csv.NOTHING)
def test_what_stands_for_nothing_is_nothing_to_us(text: str) -> None:
    assert parse_degrees(text, "lat") is None
    assert parse_degrees(text, "lon") is None
    for time_format in (None, "s", "%Y-%m-%d"):
        assert TimeParser(time_format=time_format).parse(text) is Fault.TIME


@pytest.mark.parametrize(
    ("row", "blocks"),
    [
        ("a,2024-05-01T08:00:00Z,1,2\n", True),
        ('"a","2024-05-01T08:00:00Z",1,2\n', True),
        ('"a""b",2024-05-01T08:00:00Z,1,2\n', False),
        ('"a\nb",2024-05-01T08:00:00Z,1,2\n', False),
    ],
)
def test_arrow_reads_what_is_plain_or_quoted(tmp_path: Path, row: str, blocks: bool) -> None:
    path = written(tmp_path, "user,time,lat,lon\n" + row * 100)
    assert bool(same(path, {})) is blocks


def test_random_numbers_have_the_same_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.uniform(-90, 90, 2000), rng.integers(0, 1 << 62, 2000).view("f8")])
    texts = [f"{value!r}" for value in values.tolist()]
    texts += [f"{value:.{digits}f}" for digits, value in enumerate(values[:17].tolist())]
    rows = "".join(f"u,2024-05-01T08:00:00Z,{text},{text}\n" for text in texts)
    assert same(written(tmp_path, "user,time,lat,lon\n" + rows), {}) > 100


def test_a_negative_control_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arrow_csv, "NOTHING", ("", "60.17"))
    rows = "u,2024-05-01T08:00:00Z,60.17,24.9\n" * 30
    with pytest.raises(AssertionError):
        same(written(tmp_path, "user,time,lat,lon\n" + rows), {})


def test_the_real_window_is_read_the_same(tmp_path: Path) -> None:
    path = DATA / "tdrive-window.csv.gz"
    if not path.is_file():
        pytest.skip(f"needs {path.name}, which is not ours to ship")
    columns = Columns(user="id")
    source = Source(path, delimited.FORMAT, Path(path.name))
    (arrow,) = delimited.read(source, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "find_spec", lambda _: None)
        (ours,) = delimited.read(source, columns)
    for name in ("line", "at_us", "lat", "lon", "fault"):
        assert np.array_equal(getattr(arrow, name), getattr(ours, name))
    assert arrow.user is not None
    assert ours.user is not None
    assert arrow.user.values() == ours.user.values()
