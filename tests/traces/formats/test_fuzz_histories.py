"""Damaged files of location histories: they are read, or refused in words, and tell nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish.traces.columns import Columns
from tests.support.history_samples import BINARY, SAMPLES, TIMES, as_json, sample
from tests.support.markup_samples import LATS, LONS, SECRET_DIGITS, read_until_broken
from tests.traces.formats.test_fuzz_markup import damaged

# A damaged one may lose its end and still be whole: an object per line, or a sentence.
LINES = ("lines.jsonl", "2024-05.rec", "log.nmea", "ours.tsv")
JSON = [name for name in SAMPLES if name.endswith(("json", "mfjson"))]


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    ends = {"read": 0, "refused": 0}

    @settings(derandomize=True, deadline=None, max_examples=80, database=None)
    @given(damaged(SAMPLES[name][0]))
    def check(content: bytes) -> None:
        _, problem = read_until_broken(sample(folder, name, content))
        ends["read" if problem is None else "refused"] += 1

    check()
    assert min(ends.values()) >= 2, ends  # both ways were tried


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in LINES])
def test_every_way_to_cut_a_file_short_is_noticed(tmp_path: Path, name: str) -> None:
    content = SAMPLES[name][0].rstrip() if name not in BINARY else SAMPLES[name][0]
    for end in range(0, len(content), max(7, len(content) // 150)):
        _, problem = read_until_broken(sample(tmp_path, name, content[:end]))
        assert problem is not None, end


@pytest.mark.parametrize("name", ["lines.jsonl", "2024-05.rec", "log.nmea"])
def test_cut_lines_tell_nothing(tmp_path: Path, name: str) -> None:
    content = SAMPLES[name][0]
    for end in range(0, len(content), 7):
        read_until_broken(sample(tmp_path, name, content[:end]))


PLAIN: list[Any] = [None, True, 0, -1, 10**30, 1e308, "", "x", "9" * 5000, TIMES[0], [], [[]], {}]
PLACES: list[Any] = ["geo:", f"geo:{LATS[0]}", "°", f"{LATS[0]}°", [LONS[0], LATS[0]], {"lat": []}]
VALUES = st.sampled_from([*PLAIN, *PLACES, {"latLng": f"{LATS[0]}°, x"}])


@st.composite
def mistyped(draw: st.DrawFn, value: Any) -> Any:
    """The same JSON, with some values of another type."""
    if draw(st.integers(0, 19)) == 0:
        return draw(VALUES)
    if isinstance(value, dict):
        return {name: draw(mistyped(item)) for name, item in value.items()}
    if isinstance(value, list):
        return [draw(mistyped(item)) for item in value]
    return value


@pytest.mark.parametrize("name", JSON)
def test_wrong_types_are_marked_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = tmp_path_factory.mktemp("mistyped")
    whole = json.loads(SAMPLES[name][0])

    @settings(derandomize=True, deadline=None, max_examples=80, database=None)
    @given(mistyped(whole), st.booleans())
    def check(content: Any, named: bool) -> None:
        columns = Columns(user="device_id", keep=("accuracy",)) if named else Columns()
        read_until_broken(sample(folder, name, as_json(content)), columns)

    check()


def test_the_samples_hold_what_is_looked_for() -> None:
    """The search for secrets would find them."""
    for name, (content, _) in SAMPLES.items():
        if name not in BINARY:
            assert all(digits.encode() in content for digits in SECRET_DIGITS), name
