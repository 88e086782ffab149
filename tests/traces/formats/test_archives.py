"""Zip archives: read inside, and refused where they are made to harm."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_inputs, find_sources
from hereish.traces.faults import UnreadableFileError
from hereish.traces.formats import _archive
from tests.support.history_samples import KML, SAMPLES, sample, zipped
from tests.support.markup_samples import GPX, batches, read, unreadable

GPX_BYTES = GPX.encode()


def saved(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def test_members_are_sources_of_their_own(tmp_path: Path) -> None:
    packed = gzip.compress(GPX_BYTES)
    inner = zipped({"deep/c.gpx": GPX_BYTES})
    name = saved(
        tmp_path / "all.zip",
        zipped({"b.gpx.gz": packed, "a.gpx": GPX_BYTES, "x/i.zip": inner, "notes.md": b"hello"}),
    )
    found = find_inputs([name])
    assert [source.members for source in found.sources] == [
        ("a.gpx",),
        ("b.gpx.gz",),
        ("x/i.zip", "deep/c.gpx"),
    ]
    assert [str(source.below) for source in found.sources] == [
        "all/a.gpx",
        "all/b.gpx.gz",
        "all/x/i/deep/c.gpx",
    ]
    assert found.sources[2].name == f"{name}: x/i.zip: deep/c.gpx"
    assert [source.size for source in found.sources] == [
        len(GPX_BYTES),
        len(packed),
        len(GPX_BYTES),
    ]
    assert found.ignored == {".md": 1}
    for source in found.sources:
        assert len(read(source)) == 3


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_is_read_inside(tmp_path: Path, name: str) -> None:
    archive = saved(tmp_path / "all.zip", zipped({f"folder/{name}": SAMPLES[name][0]}))
    (source,) = find_sources([archive])
    outside = read(sample(tmp_path, name))
    inside = read(source)
    assert inside.at_us.tolist() == outside.at_us.tolist()
    assert inside.lat.tolist() == outside.lat.tolist()


def test_tables_in_archives_are_data_if_they_name_places(tmp_path: Path) -> None:
    files = {"activities.csv": b"Activity ID,Name\n1,x\n", "log.csv": b"time;LAT;Lon\n1;2;3\n"}
    found = find_inputs([saved(tmp_path / "all.zip", zipped(files))])
    assert [source.members for source in found.sources] == [("log.csv",)]
    assert found.ignored == {".csv": 1}


def rewritten(change: Callable[[bytes], bytes]) -> bytes:
    return change(zipped({"harmless.gpx": GPX_BYTES}))


def with_name(name: str) -> bytes:
    return rewritten(lambda data: data.replace(b"harmless.gpx", name.encode().ljust(12, b"_")))


def doubled() -> bytes:
    """Two entries of the directory that share one file's bytes."""
    data = zipped({"aaaaaaaa.gpx": GPX_BYTES, "bbbbbbbb.gpx": GPX_BYTES})
    directory = data.index(b"PK\1\2")
    second = data.index(b"PK\1\2", directory + 1)
    offset = second + 42
    return data[:offset] + struct.pack("<I", 0) + data[offset + 4 :]


def repeated() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.gpx", GPX_BYTES)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.gpx", GPX_BYTES)
    return out.getvalue()


def encrypted() -> bytes:
    data = zipped({"a.gpx": GPX_BYTES})
    flags = data.index(b"PK\1\2") + 8
    return data[:flags] + b"\1" + data[flags + 1 :]


def bomb() -> bytes:
    return zipped({"a.gpx": b"<gpx>" + b" " * (8 << 20)})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: with_name("../../ab.gpx"), "leads out of it"),
        (lambda: with_name("/etc/abc.gpx"), "leads out of it"),
        (lambda: with_name("C:/abcde.gpx"), "leads out of it"),
        (lambda: with_name("a\\..\\b.gpx"), "leads out of it"),
        (lambda: with_name("a\nbcdefg.gpx"), "leads out of it"),
        (doubled, "overlap"),
        (repeated, "several files of one name"),
        (encrypted, "encrypted"),
        (bomb, "more than 250 times"),
        (lambda: b"PK\3\4", "not a zip archive"),
        (lambda: b"", "not a zip archive"),
        (lambda: zipped({"in.zip": bomb()}), "more than 250 times"),
        (lambda: zipped({"notes.md": b"hello"}), "no file of a format that is read"),
        (
            lambda: zipped({"1.zip": zipped({"2.zip": zipped({"a.gpx": GPX_BYTES})})}),
            "no file of a format that is read",
        ),
    ],
)
def test_archives_that_are_made_to_harm_are_refused(
    tmp_path: Path, content: Callable[[], bytes], reason: str
) -> None:
    name = saved(tmp_path / "all.zip", content())
    with pytest.raises(ParameterError, match=reason):
        find_sources([name])


def test_an_archive_of_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = saved(tmp_path / "all.zip", zipped({f"{i}.gpx": GPX_BYTES for i in range(4)}))
    monkeypatch.setattr(_archive, "MOST_MEMBERS", 3)
    with pytest.raises(ParameterError, match="more than 3 files"):
        find_sources([name])


def test_a_large_archive_inside_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = saved(tmp_path / "all.zip", zipped({"in.zip": zipped({"a.gpx": GPX_BYTES})}))
    monkeypatch.setattr(_archive, "MOST_NESTED_BYTES", 10)
    with pytest.raises(ParameterError, match="unpack it first"):
        find_sources([name])


def test_a_member_whose_checksum_is_wrong_is_unreadable(tmp_path: Path) -> None:
    data = zipped({"a.gpx": GPX_BYTES})
    checksum = data.index(b"PK\1\2") + 16
    data = data[:checksum] + b"\0\0\0\0" + data[checksum + 4 :]
    (source,) = find_sources([saved(tmp_path / "all.zip", data)])
    with pytest.raises(UnreadableFileError, match="damaged inside its archive"):
        batches(source)


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gpx.gz"
    path.write_bytes(gzip.compress(b"<gpx>" + b" " * (80 << 20)))
    reason, _ = unreadable(find_sources([str(path)])[0])
    assert "more than 250 times its size" in reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: zipped({"doc.kml": KML.encode() + b" " * (8 << 20)}), "more than 250 times"),
        (lambda: zipped({"../doc.kml": KML.encode()}), "leads out of it"),
        (lambda: zipped({"a.txt": b"x"}), "without a KML file"),
    ],
)
def test_a_kmz_is_as_careful(tmp_path: Path, content: Callable[[], bytes], reason: str) -> None:
    found, _ = unreadable(sample(tmp_path, "track.kmz", content()))
    assert reason in found


@pytest.mark.parametrize("name", ["track.kml", "run.tcx"])
def test_entities_are_refused(tmp_path: Path, name: str) -> None:
    """The billion laughs, and files of this machine."""
    text = SAMPLES[name][0].decode()
    end = text.index("?>") + 2
    for declared in ('<!ENTITY a "aaaa">', '<!ENTITY a SYSTEM "file:///etc/passwd">'):
        bad = f"{text[:end]}<!DOCTYPE x [{declared}]>{text[end:]}"
        reason, _ = unreadable(sample(tmp_path, name, bad.encode()))
        assert "document type" in reason


@pytest.mark.parametrize("name", ["track.kml", "run.tcx"])
def test_deep_nesting_is_refused(tmp_path: Path, name: str) -> None:
    root = "kml" if name.endswith("kml") else "TrainingCenterDatabase"
    content = f"<{root}>" + "<a>" * 100_000
    reason, _ = unreadable(sample(tmp_path, name, content.encode()))
    assert reason == "it is nested too deeply"


def test_columns_of_users_from_names_inside(tmp_path: Path) -> None:
    """A file of GeoLife's tree names its user by its folder, in an archive too."""
    plt = (
        "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255\n"
        "0\n39.9,116.3,0,492,39744.1,2008-10-23,02:53:04\n"
    )
    archive = zipped({"Geolife/Data/007/Trajectory/1.plt": plt.encode()})
    (source,) = find_sources([saved(tmp_path / "all.zip", archive)])
    (batch,) = source.format.read(source, Columns())
    assert batch.user is not None
    assert batch.trace is not None
    assert (batch.user.values(), batch.trace.values()) == (["007"], ["1"])
