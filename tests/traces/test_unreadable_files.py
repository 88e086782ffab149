"""Folders with files that cannot be read: counted, named, and left out if that is asked for."""

from __future__ import annotations

import errno
import gzip
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.cli._sanitize_summary import summarise
from hereish.errors import HereishError, ParameterError, PointError
from hereish.evaluation import dataset
from hereish.traces import discovery, files
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows, sanitize_files
from hereish.traces.formats.base import Source
from tests.support.history_samples import RECORDS, as_json, zipped
from tests.support.permuted_traces import small_units

M = hereish.fixed_utility(
    hereish.Privacy(math.log(10), 100), 3000, window=hereish.Day("UTC"), on_exhausted="predict"
)
GOOD = "user,time,lat,lon\n{},2025-06-03T08:00:00Z,61.234567,24.765432\n"
PLACE = ("61.23", "24.76", "234567", "765432")
INVENTORY = "item,count,price\nhammer,3,61.234567\nnail,7,24.765432\n"
NO_TIME = "name,lat,lon\nhammer,61.234567,24.765432\n"
# Each cannot be read, for a reason of its own.
BROKEN: dict[str, bytes] = {
    "a.gpx": b"",
    "b.parquet": b"61.234567 24.765432",
    "c.zip": zipped({"in.csv": GOOD.encode()})[:-30],
    "d.csv.gz": gzip.compress(GOOD.encode())[:-12],
    "e.json.gz": gzip.compress(as_json(RECORDS))[:-12],
    "f.csv": NO_TIME.encode(),
    "g.csv": GOOD.encode() + b"\0",
    "h.csv": b"61.234567,24.765432\n61.234567,24.765432\n",
    "i.zip": zipped({"../in.csv": GOOD.encode()}),
}


def folder(path: Path, good: int, broken: dict[str, bytes] | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for i in range(good):
        # Long enough that a broken one is no tenth of the bytes.
        (path / f"z{i}.csv").write_text(GOOD.format(f"user {i}") + " \n" * 200)
    for name, content in (broken or {}).items():
        (path / name).write_bytes(content)
    return path


def refused(source: Path, out: Path, **options: object) -> str:
    with pytest.raises(HereishError) as wrong:
        sanitize_files([source], out, M, **options)  # type: ignore[arg-type]  # any of its own
    assert not out.exists()
    message = str(wrong.value)
    assert not [digits for digits in PLACE if digits in message]
    assert "nothing was released" in message
    return message


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_left_out_if_that_is_asked_for(
    tmp_path: Path, name: str
) -> None:
    source, out = folder(tmp_path / "in", 12, {name: BROKEN[name]}), tmp_path / "out.csv"
    message = refused(source, out)
    assert message.startswith("1 of 13 files cannot be read; ")
    assert f"{source / name}" in message
    assert "--drop-bad goes on with what can be read" in message
    done = sanitize_files([source], out, M, drop_bad=True)
    assert (done.points, len(done.unreadable)) == (12 + (name == "g.csv"), 1)
    assert done.unreadable[0].startswith(f"{source / name}")
    assert f"not read: {source / name}" in summarise(done, M, "out.csv", None, False)


def test_the_error_says_how_many_they_are_and_why(tmp_path: Path) -> None:
    broken = {f"a{i}.gpx": b"" for i in range(5)} | {"b.parquet": b"x", "c.csv": b"1,2\n3,4\n"}
    source = folder(tmp_path / "in", 100, broken)
    message = refused(source, tmp_path / "out.csv")
    names = ", ".join(str(source / f"a{i}.gpx") for i in range(3))
    assert message.startswith("7 of 107 files cannot be read; nothing was released. ")
    assert f"{names} and 2 more: it is empty; expected " in message
    assert "b.parquet: it is not a Parquet file" in message
    assert "c.csv, line 1: it has numbers, so it is no header; expected a first line" in message
    assert message.count("To lose nothing, ") == 3


@pytest.mark.parametrize("jobs", [1, 2])
def test_those_are_more_than_a_tenth_or_not(tmp_path: Path, jobs: int) -> None:
    out = tmp_path / "out.csv"
    broken = {f"{i}.parquet": GOOD.encode() for i in range(2)}
    many = folder(tmp_path / "many", 18, broken)
    assert sanitize_files([many], out, M, drop_bad=True, jobs=jobs).points == 18
    out.unlink()
    few = folder(tmp_path / "few", 17, broken)
    message = refused(few, out, drop_bad=True, jobs=jobs)
    assert "more than a tenth: the rest of 2 of 19 files: " in message
    assert "To lose nothing, copy it again" in message
    assert sanitize_files([few], out, M, drop_bad="all", jobs=jobs).points == 17


def test_a_large_file_is_not_left_out_as_one_of_many(tmp_path: Path) -> None:
    """An archive is one file, and may hold what everybody else has recorded."""
    large = {"all.zip": os.urandom(4000)}
    source = folder(tmp_path / "in", 30, large)
    assert "more than a tenth" in refused(source, tmp_path / "out.csv", drop_bad=True)
    assert sanitize_files([source], tmp_path / "out.csv", M, drop_bad="all").points == 30


def test_a_table_without_places_is_no_track(tmp_path: Path) -> None:
    source, out = folder(tmp_path / "in", 3, {"a.csv": INVENTORY.encode()}), tmp_path / "out"
    pq.write_table(pa.table({"item": ["hammer"], "count": [3]}), source / "b.parquet")
    done = sanitize_files([source], out, M, to_form="csv")
    assert (done.points, done.unreadable) == (3, [])
    assert [text.split(": ")[0] for text in done.without_points] == [
        str(source / "a.csv"),
        str(source / "b.parquet"),
    ]
    assert sorted(path.name for path in out.glob("*.csv")) == ["z0.csv", "z1.csv", "z2.csv"]
    assert "no points: " in summarise(done, M, "out", None, False)


@pytest.mark.parametrize(
    "header", ["when,x,y", "when,start_lat,start_lon", "when,Breite lat,b", "a,time,lat"]
)
def test_one_that_may_have_places_is_not_passed_over(tmp_path: Path, header: str) -> None:
    odd = f"{header}\n1,61.234567,24.765432\n".encode()
    source = folder(tmp_path / "in", 3, {"a.csv": odd})
    assert "1 of 4 files cannot be read; " in refused(source, tmp_path / "out.csv")


def test_columns_that_options_name_are_those_of_places(tmp_path: Path) -> None:
    odd = b"time,north,east\n2025-06-03T08:00:00Z,61.234567,24.765432\n"
    source = folder(tmp_path / "in", 0, {"a.csv": odd, "b.csv": odd, "c.csv": INVENTORY.encode()})
    columns = Columns(lat="north", lon="east")
    done = sanitize_files([source], tmp_path / "out.csv", M, columns=columns)
    assert (done.points, len(done.without_points)) == (2, 1)
    message = refused(source, tmp_path / "new.csv")
    assert "give --lat, one of 'time', 'north', 'east'" in message
    archive = tmp_path / "in.zip"
    archive.write_bytes(zipped({"a.csv": odd, "c.csv": INVENTORY.encode()}))
    done = sanitize_files([archive], tmp_path / "out.csv", M, columns=columns)
    assert (done.points, done.ignored) == (1, {".csv": 1})
    with pytest.raises(ParameterError, match="name no latitude and longitude: say with --lat"):
        sanitize_files([archive], tmp_path / "out.csv", M)


def test_where_options_fit_no_file_that_is_a_usage_error(tmp_path: Path) -> None:
    source, out = folder(tmp_path / "in", 12), tmp_path / "out.csv"
    with pytest.raises(ParameterError, match=r"12 of 12 files .* give one of these with --time"):
        sanitize_files([source], out, M, columns=Columns(time="when"))
    with pytest.raises(PointError, match=r"no points that can be used: the rest of 12 of 12"):
        sanitize_files([source], out, M, columns=Columns(time="when"), drop_bad="all")
    with pytest.raises(ParameterError, match=r"z0.csv: there is no column 'when'"):
        sanitize_files([source / "z0.csv"], out, M, columns=Columns(time="when"), drop_bad="all")
    with pytest.raises(PointError, match="there is no column 'when'"):
        dataset.load([str(source)], Columns(time="when"))


@pytest.mark.parametrize(("number", "one"), [(errno.EACCES, True), (errno.ENOSPC, False)])
def test_what_the_system_does_not_give_is_one_file_or_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, one: bool
) -> None:
    source, out = folder(tmp_path / "in", 12, {"a.csv": b"", "a.json": b""}), tmp_path / "out.csv"
    real = Source.open

    def closed(self: Source) -> BinaryIO:
        if self.below.name.startswith("a."):
            raise OSError(number, os.strerror(number), str(self.path))
        return real(self)

    monkeypatch.setattr(Source, "open", closed)
    if not one:
        with pytest.raises(OSError, match=os.strerror(number)):
            sanitize_files([source], out, M, drop_bad="all")
        return
    message = refused(source, out)
    assert message.startswith("2 of 14 files cannot be read; ")
    assert f"the system does not give it: {os.strerror(number)}" in message
    assert sanitize_files([source], out, M, drop_bad="all").points == 12
    with pytest.raises(PointError, match="the system does not give it"):
        sanitize_files([source / "a.csv"], out, M)


def test_files_of_a_folder_that_may_only_be_listed_are_some_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = folder(tmp_path / "in", 12, {"shut.csv": GOOD.encode()}), tmp_path / "out.csv"
    is_file = Path.is_file

    def shut(path: Path) -> bool:
        if path.name == "shut.csv":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", shut)
    message = refused(source, out)
    assert message.startswith("1 of 13 files cannot be read; ")
    assert "shut.csv: the system does not give it: Permission denied" in message
    summary = sanitize_files([source], out, M, drop_bad=True)
    assert len(summary.unreadable) == 1
    assert summary.points == 12


def test_a_damaged_archive_beside_one_large_file_is_not_forgotten(tmp_path: Path) -> None:
    """One large file would be divided between processes, which know of no other."""
    source = folder(tmp_path / "in", 0, {"a.zip": b"PK"})
    rows = "".join(f"{u},2025-06-03T08:{m:02}:00Z,61,25\n" for u in range(40) for m in range(60))
    (source / "b.csv").write_text("user,time,lat,lon\n" + rows)
    assert "1 of 2 files" in refused(source, tmp_path / "out.csv", jobs=2)
    done = sanitize_files([source], tmp_path / "out.csv", M, jobs=2, drop_bad="all")
    assert len(done.unreadable) == 1


def test_a_file_that_goes_in_a_later_pass_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are not in the order of time are read several times."""
    source, opened = folder(tmp_path / "in", 0), 0
    for i in range(40):
        text = GOOD.format("ann").replace("08:00", f"08:{59 - i}")
        (source / f"z{i:02}.csv").write_text(text)
    real = Source.open

    def vanishing(self: Source) -> BinaryIO:
        nonlocal opened
        opened += self.below.name == "z39.csv"
        if self.below.name == "z39.csv" and opened > 1:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        return real(self)

    out = tmp_path / "out.csv"
    with small_units(10):
        assert sanitize_files([source], out, M, drop_bad="all").points == 40
        out.unlink()
        monkeypatch.setattr(Source, "open", vanishing)
        message = refused(source, out, drop_bad="all")
    assert "the files have changed while they were read" in message


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_that_has_gone_since_it_was_found_is_one_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    source, out = folder(tmp_path / "in", 12), tmp_path / "out.csv"
    find = discovery.find_inputs

    def find_and_lose(*given: Any, **options: Any) -> Any:
        gone = source / "z7.csv"
        gone.write_text(GOOD.format("user 7"))
        found = find(*given, **options)
        gone.unlink()
        return found

    monkeypatch.setattr(files, "find_inputs", find_and_lose)
    message = refused(source, out, jobs=jobs)
    assert message.startswith("1 of 12 files cannot be read; ")
    assert f"z7.csv: the system does not give it: {os.strerror(errno.ENOENT)}" in message
    done = sanitize_files([source], out, M, jobs=jobs, drop_bad=True)
    assert (done.points, len(done.unreadable)) == (11, 1)


def test_what_is_compared_and_evaluated_leaves_the_same_out(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", 12, {"c.zip": b"PK"})
    with pytest.raises(PointError, match="1 of 13 files cannot be read"):
        load_rows([str(source)], Columns())
    assert len(load_rows([str(source)], Columns(), drop_bad=True)) == 12
    assert dataset.load([str(source)]).users == 12
