from __future__ import annotations

import gzip
import io
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.errors import HereishError, ParameterError
from hereish.traces.columns import Columns, Layout
from hereish.traces.faults import Fault, UnreadableFileError
from hereish.traces.formats import geolife, tdrive
from hereish.traces.formats.base import Source
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.names import safe_file_name
from hereish.traces.table import Ids, ReleasedRows, RowBatch
from tests.support.paths import DATA

BEIJING = "Asia/Shanghai"
GUARANTEE = GuaranteeMetadata("ln 10 within 100 m\nfor a day", time_zone=BEIJING)
QUICK = settings(derandomize=True, deadline=None, max_examples=200)
HEADER = (
    "Geolife trajectory\r\nWGS 84\r\nAltitude is in Feet\r\nReserved 3\r\n"
    "0,2,255,My Track,0,0,2,8421376\r\n0\r\n"
)
POINT = "39.984702,116.318417,0,492,39744.1201851852,2008-10-23,02:53:04\r\n"
FIX = "366,2008-02-02 15:36:08,116.51172,39.92123\r\n"


def files(folder: str, pattern: str) -> list[Path]:
    found = sorted((DATA / folder).rglob(pattern))
    if not found:
        pytest.skip(f"needs {folder}, which is not ours to ship")
    return found


def read(form: ModuleType, path: Path, **columns: Any) -> RowBatch:
    (batch,) = form.read(Source(path, form.FORMAT, Path(path.name)), Columns(**columns))
    assert isinstance(batch, RowBatch)
    return batch


def text(form: ModuleType, folder: Path, content: str | bytes, **columns: Any) -> RowBatch:
    path = folder / "in.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read(form, path, **columns)


def error(form: ModuleType, folder: Path, content: str | bytes, **columns: Any) -> HereishError:
    with pytest.raises(HereishError) as caught:
        text(form, folder, content, **columns)
    return caught.value


def file_of(
    form: ModuleType, rows: RowBatch, guarantee: GuaranteeMetadata = GUARANTEE, **changes: Any
) -> bytes:
    count = len(rows)
    fields = {"user": rows.user, "trace": rows.trace, "kept": rows.kept} | changes
    kind, cost = np.zeros(count, dtype=np.uint8), np.full(count, 0.123)
    released = ReleasedRows(rows.at_us, rows.lat, rows.lon, kind, cost, **fields)
    file = io.BytesIO()
    writer = form.open_writer(file, Layout(), guarantee)
    halves = np.arange(count) < count // 2
    writer.write(released.take(halves))
    writer.write(released.take(~halves))
    writer.finish()
    assert not file.closed
    return file.getvalue()


def same(one: RowBatch, other: RowBatch) -> bool:
    names = ("at_us", "lat", "lon", "fault")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


# GeoLife.


def test_every_real_plt_file_is_read_as_pandas_reads_it_and_comes_back(tmp_path: Path) -> None:
    names = ["lat", "lon", "zero", "feet", "days", "date", "time"]
    for path in files("geolife-raw", "*.plt"):
        frame = pd.read_csv(path, skiprows=6, names=names, dtype={"feet": str})
        batch = read(geolife, path, keep=("altitude",))
        assert len(batch) == len(frame) == path.read_bytes().count(b"\n") - 6
        assert not batch.fault.any()  # a latitude of 400 is for a later stage
        assert np.array_equal(batch.lat, frame["lat"])
        assert np.array_equal(batch.lon, frame["lon"])
        times = pd.to_datetime(frame["date"] + " " + frame["time"]).to_numpy("datetime64[us]")
        assert np.array_equal(batch.at_us, times.astype(np.int64))
        assert np.array_equal(batch.line, np.arange(len(frame)) + 7)
        assert batch.kept["altitude"].tolist() == frame["feet"].tolist()
        assert batch.user is not None
        assert batch.trace is not None
        assert set(batch.user.values()) == {path.parts[-3]}
        assert set(batch.trace.values()) == {path.stem}
        assert same(text(geolife, tmp_path, file_of(geolife, batch)), batch)


def test_a_plt_file_is_written_as_published_without_altitudes() -> None:
    for path in files("geolife-raw", "*.plt"):
        published = path.read_bytes().decode().split("\r\n")
        out = file_of(geolife, read(geolife, path, keep=("altitude",))).decode().split("\r\n")
        assert out[3] == "Reserved 3: ln 10 within 100 m for a day"
        assert out[:3] + out[4:6] == published[:3] + published[4:6]
        assert len(out) == len(published)
        for ours, theirs in zip(out[6:-1], published[6:-1], strict=True):
            lat, lon, zero, altitude, days, date, time = ours.split(",")
            wanted = theirs.split(",")
            assert [float(lat), float(lon)] == [float(wanted[0]), float(wanted[1])]
            assert [zero, altitude, date, time] == ["0", "-777", *wanted[5:]]
            assert float(days) == pytest.approx(float(wanted[4]), abs=2e-10)
        assert out[-1] == published[-1] == ""


def test_a_plt_file_is_written_to_the_byte(tmp_path: Path) -> None:
    batch = text(geolife, tmp_path, HEADER + POINT.replace(":04", ":04.5"), keep=("altitude",))
    point = "39.984702,116.318417,0,-777,39744.1201909722,2008-10-23,02:53:04.5\r\n"
    head = HEADER.replace("Reserved 3", "Reserved 3: ln 10 within 100 m for a day")
    assert file_of(geolife, batch).decode() == head + point


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("39.98,116.31,0,492,39744.12,2008-10-23,02:53:04", Fault.NONE),
        ("39.98,116.31,0,-777,39744.12,2008-10-23,02:53:04.5", Fault.NONE),
        ("39.98,116.31,0,492,39744.12,2008-10-23", Fault.LINE),
        ("39.98,116.31,0,492,39744.12,2008-10-23,02:53:04,", Fault.LINE),
        ("?", Fault.LINE),
        ("39.98,116.31,0,492,39744.12,2008-10-23,02:53", Fault.TIME),  # it breaks off
        ("39.98,116.31,0,492,39744.12,2008-10-23,", Fault.TIME),
        ("39.98,116.31,0,492,39744.12,2008-13-23,02:53:04", Fault.TIME),
        ("nan,116.31,0,492,39744.12,2008-10-23,02:53:04", Fault.LAT),
        ("39.98,,0,492,39744.12,2008-10-23,02:53:04", Fault.LON),
    ],
)
def test_a_bad_point_of_geolife_has_its_fault_and_line(
    tmp_path: Path, row: str, fault: Fault
) -> None:
    batch = text(geolife, tmp_path, f"{HEADER}{POINT}\r\n{row}\r\n{POINT}")
    assert batch.fault.tolist() == [Fault.NONE, fault, Fault.NONE]
    assert batch.line.tolist() == [7, 9, 10]


def test_times_of_geolife_are_utc_whatever_the_zone(tmp_path: Path) -> None:
    batch = text(geolife, tmp_path, HEADER + POINT, zone=ZoneInfo(BEIJING))
    assert batch.at_us.tolist() == [1_224_730_384_000_000]


def test_the_folders_of_geolife_tell_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "Data" / "042" / "Trajectory"
    folder.mkdir(parents=True)
    path = folder / "20081023.plt.gz"
    path.write_bytes(gzip.compress((HEADER + POINT).encode()))
    monkeypatch.chdir(folder)
    for name in (path, Path(path.name), Path("..") / "Trajectory" / path.name):
        batch = read(geolife, name)
        assert batch.user is not None
        assert batch.trace is not None
        assert (batch.user.values(), batch.trace.values()) == (["042"], ["20081023"])
    shutil.copy(path, tmp_path / path.name)
    assert read(geolife, tmp_path / path.name).user is None


@pytest.mark.parametrize(
    ("content", "words", "line"),
    [
        ("", "empty", None),
        (HEADER, "no points", None),
        (HEADER[:40], "no points", None),
        (POINT * 9, "no GeoLife file", 1),
        ("OziExplorer Track Point File Version 2.1\nWGS 84\n", "track of OziExplorer", 1),
        (HEADER.encode("utf-16") + b"x", "UTF-16", None),
        ((HEADER + POINT).encode() + b"\xff\0", "UTF-8", 8),
    ],
)
def test_what_is_no_geolife_file_is_said(
    tmp_path: Path, content: str | bytes, words: str, line: int | None
) -> None:
    wrong = error(geolife, tmp_path, content)
    assert isinstance(wrong, UnreadableFileError)
    assert words in str(wrong)
    assert wrong.line == line
    assert "116" not in str(wrong)


def test_nothing_else_can_be_kept(tmp_path: Path) -> None:
    wrong = error(geolife, tmp_path, HEADER + POINT, keep=("altitude", "days"))
    assert isinstance(wrong, ParameterError)
    assert "'days'" in str(wrong)
    assert isinstance(error(tdrive, tmp_path, FIX, keep=("id",)), ParameterError)


# T-Drive.


def test_every_real_taxi_is_read_as_pandas_reads_it_and_comes_back(tmp_path: Path) -> None:
    for path in files("tdrive-raw", "*.txt"):
        frame = pd.read_csv(path, names=["id", "t", "lon", "lat"], dtype={"id": str})
        batch = read(tdrive, path, zone=ZoneInfo(BEIJING))
        assert len(batch) == len(frame) == len(path.read_text().splitlines())
        assert not batch.fault.any()
        assert batch.user is not None
        assert batch.trace is None
        assert batch.user.values() == frame["id"].tolist() == [path.stem] * len(frame)
        times = pd.to_datetime(frame["t"]).dt.tz_localize(BEIJING).dt.tz_convert(None)
        assert np.array_equal(batch.at_us, times.to_numpy("datetime64[us]").astype(np.int64))
        assert np.array_equal(batch.lat, frame["lat"])
        assert np.array_equal(batch.lon, frame["lon"])
        out = file_of(tdrive, batch)
        assert out.decode().splitlines() == path.read_text().splitlines()
        assert same(text(tdrive, tmp_path, out, zone=ZoneInfo(BEIJING)), batch)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("366,2008-02-02 15:36:08,116.51172,39.92123", Fault.NONE),
        ("366,2008-02-02 15:36:08,116.51172", Fault.LINE),
        ("366,2008-02-02 15:36:08,116.51172,39.92123,", Fault.LINE),
        ("id", Fault.LINE),
        (",2008-02-02 15:36:08,116.51172,39.92123", Fault.USER),
        ("366,2008-02-02,116.51172,39.92123", Fault.TIME),
        ("366,1201937768,116.51172,39.92123", Fault.TIME),
        ("id,time,lon,lat", Fault.TIME),
        ("366,2008-02-02 15:36:08,?,39.92123", Fault.LON),
        ("366,2008-02-02 15:36:08,116.51172,3_9", Fault.LAT),
    ],
)
def test_a_bad_fix_of_a_taxi_has_its_fault_and_line(tmp_path: Path, row: str, fault: Fault) -> None:
    batch = text(tdrive, tmp_path, f"{FIX}\n{row}\n{FIX}".replace("\r", ""))
    assert batch.fault.tolist() == [Fault.NONE, fault, Fault.NONE]
    assert batch.line.tolist() == [1, 3, 4]
    assert batch.lon[0] == 116.51172
    assert batch.lat[2] == 39.92123


def test_an_empty_taxi_file_is_unreadable(tmp_path: Path) -> None:
    assert str(error(tdrive, tmp_path, "")) == "it is empty"
    assert str(error(tdrive, tmp_path, "\r\n\r\n")) == "it is empty"


def test_taxi_times_are_written_in_the_zone_of_the_promise(tmp_path: Path) -> None:
    batch = text(tdrive, tmp_path, FIX)  # without a zone, UTC
    assert file_of(tdrive, batch, GuaranteeMetadata("g")) == FIX.encode()
    assert b"366,2008-02-02 23:36:08,116.5" in file_of(tdrive, batch)
    exact = text(tdrive, tmp_path, FIX.replace(":08", ":08.250"))
    assert b",2008-02-02 23:36:08.250000," in file_of(tdrive, exact)


def test_ids_that_the_format_cannot_hold_are_escaped(tmp_path: Path) -> None:
    batch = text(tdrive, tmp_path, FIX)
    assert file_of(tdrive, batch, user=None).startswith(b"0,2008-")
    odd = Ids(np.zeros(1, dtype=np.int64), ["a,b\r\nc\ud800"])
    out = file_of(tdrive, batch, user=odd)
    assert out.startswith(b"a%2Cb%0D%0Ac\\ud800,2008-")
    assert len(text(tdrive, tmp_path, out)) == 1
    number = Ids(np.zeros(1, dtype=np.int64), [366])
    assert file_of(tdrive, batch, user=number) == file_of(tdrive, batch)


@QUICK
@given(
    st.lists(
        st.tuples(
            st.integers(-2_000_000_000_000_000, 4_000_000_000_000_000),
            st.floats(-90, 90),
            st.floats(-180, 180),
        ),
        min_size=1,
    )
)
def test_whatever_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, float, float]]
) -> None:
    at_us, lat, lon = zip(*rows, strict=True)
    count = len(rows)
    zeros = np.zeros(count, dtype=np.int64)
    batch = RowBatch(
        zeros,
        np.array(at_us, dtype=np.int64),
        np.array(lat),
        np.array(lon),
        zeros.astype(np.uint8),
    )
    folder = tmp_path_factory.getbasetemp()
    for form in (geolife, tdrive):
        assert same(text(form, folder, file_of(form, batch, GuaranteeMetadata("g"))), batch)


# Names of files.


def test_names_of_files_are_those_of_the_published_trees() -> None:
    assert geolife.path_in_folder("010", "20081023") == "Data/010/Trajectory/20081023.plt"
    assert geolife.path_in_folder(None, None) == "Data/000/Trajectory/trace.plt"
    assert tdrive.path_in_folder(366, None) == "366.txt"
    assert tdrive.path_in_folder(None, None) == "0.txt"
    assert tdrive.path_in_folder("../../etc/passwd", None) == "%2E.%2F..%2Fetc%2Fpasswd.txt"
    assert geolife.path_in_folder("..", "") == "Data/%2E./Trajectory/%.plt"


@QUICK
@given(st.lists(st.text(), unique=True, max_size=5))
def test_ids_make_names_that_differ_and_stay_where_they_are(ids: list[str]) -> None:
    long = [identity * 90 for identity in ids if identity]
    names = [safe_file_name(identity) for identity in dict.fromkeys([*ids, *long])]
    assert len(set(names)) == len(names)
    for name in names:
        assert 0 < len(name.encode()) <= 200
        assert not name.startswith(".")
        assert not set(name) & set('/\\:*?"<>|\0')
