"""Files that were damaged on their way: each is read as far as it makes sense, or refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hereish.errors import HereishError
from hereish.traces.columns import Columns
from hereish.traces.faults import Fault
from hereish.traces.formats import delimited, geolife, tdrive
from hereish.traces.formats.base import Source
from hereish.traces.table import RowBatch

# The digits of these places are in no other number here, so a message with them has told a place.
SECRETS = ("8642975", "3197864")
_ROWS = range(20)
CSV = "user,time,lat,lon,trip,note\n" + "".join(
    f'u{i % 3},2024-05-01T08:{i:02}:00Z,39.8642975{i},116.3197864{i},{i // 9},"a ""b"",\nc"\n'
    for i in _ROWS
)
PLT = (
    "Geolife trajectory\r\nWGS 84\r\nAltitude is in Feet\r\nReserved 3\r\n"
    "0,2,255,My Track,0,0,2,8421376\r\n0\r\n"
) + "".join(
    f"39.8642975{i},116.3197864{i},0,492,39744.12,2008-10-23,02:53:{i:02}\r\n" for i in _ROWS
)
TAXI = "".join(f"366,2008-02-02 15:36:{i:02},116.3197864{i},39.8642975{i}\r\n" for i in _ROWS)
SAMPLES: dict[str, tuple[ModuleType, bytes, Columns]] = {
    "comma.csv": (delimited, CSV.encode(), Columns(keep=("note",))),
    "semicolon.csv": (delimited, CSV.replace(",", ";").encode(), Columns()),
    "in.plt": (geolife, PLT.encode(), Columns(keep=("altitude",))),
    "366.txt": (tdrive, TAXI.encode(), Columns()),
}
WEIRD = [
    b"\0",
    b"\r",
    b"\n\n",
    b'"',
    b'""',
    b",",
    b";",
    b"\t",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    "\u2028\x85\x1c".encode(),
    "٣".encode(),
    b"nan",
    b"-inf",
    b"1e999",
    b"9" * 400,
    b"_",
    b"+99:99",
    b"0000-00-00",
    b"9999-12-31T23:59:59-23:59",
    b"0001-01-01 00:00:00",
    b"a" * 140_000,
]

Mutation = tuple[str, float, float, bytes]
MUTATIONS = st.lists(
    st.tuples(
        st.sampled_from(["truncate", "flip", "delete", "repeat", "insert"]),
        st.floats(0, 1),
        st.floats(0, 1),
        st.one_of(st.sampled_from(WEIRD), st.binary(min_size=1, max_size=4)),
    ),
    min_size=1,
    max_size=4,
)
FUZZ = settings(derandomize=True, deadline=None, max_examples=200)


def damaged(content: bytes, mutations: list[Mutation]) -> bytes:
    for how, start, reach, extra in mutations:
        begin = round(start * len(content))
        end = begin + round(reach**3 * (len(content) - begin))  # mostly short
        before, middle, after = content[:begin], content[begin:end], content[end:]
        if how == "truncate":
            content = before
        elif how == "flip":
            content = before + bytes([middle[0] ^ (extra[0] or 1)] if middle else []) + after
        elif how == "delete":
            content = before + after
        elif how == "repeat":
            content = before + middle * 2 + after
        else:
            content = before + extra + middle + after
    return content


def check(batch: RowBatch, columns: Columns) -> None:
    count = len(batch)
    assert count > 0
    for column in (batch.line, batch.at_us, batch.lat, batch.lon, batch.fault):
        assert len(column) == count
    kinds = [column.dtype.str[1:] for column in (batch.line, batch.at_us, batch.fault)]
    assert kinds == ["i8", "i8", "u1"]
    assert (np.diff(batch.line) > 0).all()
    assert set(batch.fault.tolist()) <= {
        *range(Fault.LON + 1),
        *range(Fault.NUMBER, Fault.POINT + 1),
    }
    good = batch.fault == Fault.NONE
    assert np.isfinite(batch.lat[good]).all()
    assert np.isfinite(batch.lon[good]).all()
    for ids in (batch.user, batch.trace):
        if ids is not None:
            assert len(ids.codes) == count
            assert len(set(ids.names)) == len(ids.names) > ids.codes.max()
    if batch.user is not None:
        assert all(name.strip() for name in batch.user.take(good).values())
    assert set(batch.kept) == set(columns.keep)
    assert all(len(column) == count for column in batch.kept.values())
    assert repr(batch) == f"<RowBatch of {count} rows>"


def tell_nothing(error: BaseException | None) -> None:
    while error is not None:
        for secret in SECRETS:
            assert secret not in str(error)
            assert secret not in repr(error)
        assert error.__cause__ is None
        error = error.__context__


def read(name: str, path: Path) -> int:
    """The number of rows that could be read; anything but the errors that are ours gets out."""
    form, _, columns = SAMPLES[name]
    count = 0
    try:
        for batch in form.read(Source(path, form.FORMAT, Path(name)), columns):
            check(batch, columns)
            count += len(batch)
    except HereishError as error:
        tell_nothing(error)
    return count


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_themselves_are_whole(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(SAMPLES[name][1])
    assert read(name, path) == len(_ROWS)


@pytest.mark.parametrize("name", SAMPLES)
@FUZZ
@example([("truncate", 0.0, 0.0, b"x")])
@example([("delete", 0.0, 0.4, b"x")])
@example([("insert", 0.5, 0.0, b"\xff")])
@given(mutations=MUTATIONS)
def test_a_damaged_file_is_read_or_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory, mutations: list[Mutation]
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(damaged(SAMPLES[name][1], mutations))
    read(name, path)


@pytest.mark.parametrize("name", SAMPLES)
@FUZZ
@given(mutations=MUTATIONS)
def test_a_damaged_packed_file_is_read_or_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory, mutations: list[Mutation]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{name}.gz"
    path.write_bytes(damaged(gzip.compress(SAMPLES[name][1], mtime=0), mutations))
    read(name, path)


@pytest.mark.parametrize("name", SAMPLES)
@FUZZ
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    read(name, path)


@pytest.mark.parametrize(
    ("name", "header_lines", "row_lines"),
    [("comma.csv", 1, 2), ("semicolon.csv", 1, 2), ("in.plt", 6, 1), ("366.txt", 0, 1)],
)
def test_a_file_that_breaks_off_anywhere_has_the_rows_before(
    name: str, header_lines: int, row_lines: int, tmp_path: Path
) -> None:
    content, path = SAMPLES[name][1], tmp_path / name
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        whole = max(0, content[:end].count(b"\n") - header_lines) // row_lines
        assert whole <= read(name, path) <= whole + 1
