"""Files that were damaged in many ways: they are read, or refused in words, and tell nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.traces.columns import Columns, Layout
from tests.support.markup_samples import (
    GPX,
    LINES,
    POINTS,
    SECRET_DIGITS,
    batches,
    check_silent,
    read_until_broken,
    released,
    source,
    written,
)

WEIRD = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\r",
    b"<",
    b">",
    b"&",
    b"&amp;",
    b"&lol;",
    b"]]>",
    b"<![CDATA[",
    b"<!--",
    b"<!DOCTYPE gpx [<!ENTITY lol 'lol'>]>",
    b"<?xml version='1.0' encoding='utf-7'?>",
    b"<trk>",
    b"</trkseg>",
    b"<trkpt lat='1' lon='2'>",
    b'"',
    b"\\",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[" * 5000,
    b",",
    b":",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b"null",
    b"true",
    b"3",
    b'"x"',
    b'"user":null,',
    "\u0661\u2028é".encode(),
)
ROWS = released(
    [1_714_550_400_000_000, 1_714_550_400_000_001, 0],
    [48.7361901, 48.7361902, -12.7361903],
    [11.5824701, 11.5824702, -77.5824703],
    user=["a", "b", "a"],
    trace=["t", "t", "u"],
)
SAMPLES = {
    "phone.gpx": GPX.encode(),
    "ours.gpx": written("gpx", ROWS),
    "points.geojson": POINTS.encode(),
    "lines.geojson": LINES.encode(),
    "ours.geojson": written("geojson", ROWS),
    "our_lines.geojson": written("geojson", ROWS, layout=Layout(lines=True)),
}
KEEP = {"gpx": ("ele", "hr"), "geojson": ("name",)}


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """A file after a few accidents."""
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.integers(0, 60)))
        accident = draw(st.sampled_from(["cut", "flip", "delete", "twice", "move", "insert"]))
        if accident == "cut":
            content = content[:begin]
        elif accident == "flip":
            flipped = bytes(
                byte ^ (1 << draw(st.integers(0, 7))) for byte in content[begin : begin + 2]
            )
            content = content[:begin] + flipped + content[begin + 2 :]
        elif accident == "delete":
            content = content[:begin] + content[end:]
        elif accident == "twice":
            content = content[:end] + content[begin:]
        elif accident == "move":
            place = draw(st.integers(0, len(content)))
            content = content[:place] + content[begin:end] + content[place:]
        else:
            content = content[:begin] + draw(st.sampled_from(WEIRD)) + content[begin:]
    return content


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    ends = {"read": 0, "refused": 0}

    @settings(derandomize=True, deadline=None, max_examples=200, database=None)
    @given(damaged(SAMPLES[name]), st.booleans())
    def check(content: bytes, keep: bool) -> None:
        one = source(folder, name, content)
        columns = Columns(keep=KEEP[one.format.name] if keep else ())
        _, problem = read_until_broken(one, columns)
        ends["read" if problem is None else "refused"] += 1

    check()
    assert min(ends.values()) >= 10  # both ways were tried


@pytest.mark.parametrize("name", SAMPLES)
def test_every_way_to_cut_a_file_short_is_noticed(tmp_path: Path, name: str) -> None:
    content = SAMPLES[name]
    whole = sum(map(len, batches(source(tmp_path, name, content))))
    for end in range(0, len(content.rstrip()), 7):
        found, problem = read_until_broken(source(tmp_path, name, content[:end]))
        assert problem is not None
        assert sum(map(len, found)) <= whole


def test_the_samples_hold_what_is_looked_for() -> None:
    """The search for secrets would find them."""
    for content in SAMPLES.values():
        assert all(digits.encode() in content for digits in SECRET_DIGITS)
    leaks: Sequence[BaseException] = (ValueError("at 48.7361901"), _chained())
    for leak in leaks:
        with pytest.raises(AssertionError):
            check_silent(leak)


def _chained() -> BaseException:
    try:
        try:
            float("48.7361901 N")
        except ValueError:
            raise KeyError("hidden") from None
    except KeyError as error:
        return error
    raise AssertionError
