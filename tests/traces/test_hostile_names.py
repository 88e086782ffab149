"""One person has one budget, however the name is written and whatever the windows say."""

from __future__ import annotations

import csv
import itertools
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish.errors import ParameterError, PartError, PointError
from hereish.traces import Budgets, sanitize_frame
from hereish.traces.budgets import EachTrace, sanitize_rows
from hereish.traces.files import sanitize_files
from hereish.traces.names import canonical_name, name_key

PRIVACY = hereish.Privacy(math.log(10), 100)
BUDGET = PRIVACY.eps_per_m * (1 + 1e-9)
M = hereish.independent(PRIVACY, reports=5)
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)

INVISIBLE = ["\u200b", "\u200d", "\ufeff", "\u00ad", "\u2060", "\u034f", "\ufe0f", "\x00", "\u202e"]
FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")


@st.composite
def spelled(draw: st.DrawFn, name: str) -> str:
    """A name as somebody else might write it, or a program on its way."""
    if name.isdigit():
        name = draw(
            st.sampled_from(
                [name, f"{name}.0", f"+{name}", f"{name}e0", f"{name}.", f"{name}.00E+0"]
            )
        )
        if draw(st.booleans()):
            name = name.translate(FULL_WIDTH)
    name = unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"])), name)
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(name)))
        name = name[:place] + draw(st.sampled_from(INVISIBLE)) + name[place:]
    blank = st.text(st.sampled_from(" \t\u00a0\u2003\n"), max_size=2)
    return draw(blank) + name + draw(blank)


PEOPLE = st.sampled_from(
    ["1", "0", "42", "9007199254740993", "Zoë", "ann b", "ﬁn", "Ångström", "x-1"]
)
SPELLINGS = PEOPLE.flatmap(lambda name: st.lists(spelled(name), min_size=2, max_size=8))


@settings(max_examples=200)
@given(SPELLINGS)
def test_spellings_of_one_name_are_one(spellings: list[str]) -> None:
    assert len({canonical_name(name) for name in spellings}) == 1


@settings(max_examples=300)
@given(st.one_of(st.text(), st.text("0123456789.eE+-٣０ \u200b"), st.floats(), st.integers()))
def test_a_name_for_a_name_is_itself(identity: object) -> None:
    name = canonical_name(identity)
    assert canonical_name(name) == name
    name_key(name)  # every name has its place


@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_is_one_as_number_fraction_and_text(number: int) -> None:
    spellings = [number, float(number), np.int64(number), str(number), str(float(number))]
    assert len({canonical_name(spelling) for spelling in spellings}) == 1


@given(st.lists(st.integers(0, 10**20).map(str), min_size=2, unique=True))
def test_other_numbers_are_others(names: list[str]) -> None:
    assert len({canonical_name(name) for name in names}) == len(names)
    assert sorted(names, key=name_key) == sorted(names, key=int) or max(map(len, names)) > 18


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("7", "007"),
        ("Ann", "ann"),
        ("a", "а"),
        ("1", "1.5"),
        ("1", "-1"),
        ("0", "00"),
        ("a b", "ab"),
    ],
)
def test_these_are_two(one: str, other: str) -> None:
    """Leading zeros, capitals and letters of other scripts are other ids."""
    assert canonical_name(one) != canonical_name(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-0", 0),
        ("1.50", 1.5),
        ("007.0", "007"),
        ("1e300", 1e300),
        (" a  b ", "a\tb"),
        ("1e-999", "0"),
    ],
)
def test_these_are_one(one: object, other: object) -> None:
    assert canonical_name(one) == canonical_name(other)


def frame_of(users: Sequence[Any], first: int = 0) -> Any:
    rows = range(first, first + len(users))
    return pd.DataFrame(
        {
            "user": pd.Series(users),
            "time": [NOON + timedelta(minutes=row) for row in rows],
            "lat": [60.0 + 0.1 * row for row in rows],
            "lon": 25.0,
        }
    )


@settings(max_examples=25, deadline=None)
@given(SPELLINGS)
def test_one_budget_in_a_frame_and_in_frames_one_after_the_other(spellings: list[str]) -> None:
    many = spellings * 6
    out = sanitize_frame(frame_of(many), M, user="user")
    assert math.fsum(out["cost"]) <= BUDGET
    budgets, spent = Budgets(M), 0.0
    for i, name in enumerate(spellings):
        batch = frame_of([name] * 6, 6 * i)
        spent += math.fsum(sanitize_frame(batch, M, user="user", budgets=budgets)["cost"])
    assert spent <= BUDGET
    assert len(budgets) == 1


@settings(max_examples=25, deadline=None)
@given(SPELLINGS)
def test_one_budget_in_rows(spellings: list[str]) -> None:
    """Whoever numbers users by their texts has two numbers for one person."""
    user = np.repeat(np.arange(len(spellings)), 6)
    at_s = np.arange(len(user), dtype=np.float64) * 60.0
    points = np.column_stack([60.0 + at_s / 6e3, np.full(len(user), 25.0)])
    out = sanitize_rows(M, user, spellings, points, at_s)
    assert math.fsum(out.cost) <= BUDGET


@settings(max_examples=15, deadline=None)
@given(number=st.integers(0, 50), texts=st.data(), window=st.sampled_from(["none", "trace"]))
def test_one_budget_in_files_with_numbers_and_texts(
    number: int, texts: st.DataObject, window: str
) -> None:
    """In CSV as text, in Parquet as a whole number, as text and as a dictionary."""
    m = M if window == "none" else hereish.independent(PRIVACY, reports=5, window=EachTrace())
    kinds = [pa.int64(), pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.uint8()]
    with TemporaryDirectory() as name:
        sources = []
        for i, kind in enumerate(kinds):
            whole = pa.types.is_integer(kind)
            ids = [number if whole else texts.draw(spelled(str(number))) for _ in range(6)]
            table = {
                "user": pa.array(ids, kind),
                "trace": pa.array([number if whole else f"{number}.0"] * 6),
                "time": [NOON + timedelta(minutes=6 * i + row) for row in range(6)],
                "lat": [60.0 + i + row / 7 for row in range(6)],
                "lon": [25.0] * 6,
            }
            sources.append(Path(name, f"{i}.parquet"))
            pq.write_table(pa.table(table), sources[-1])
        plain = Path(name, "plain.csv")
        with plain.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(["user", "trace", "time", "lat", "lon"])
            for row in range(6):
                at = (NOON + timedelta(minutes=40 + row)).isoformat()
                # No NUL: a CSV file with one is not text.
                user = texts.draw(spelled(str(number))).replace("\x00", "")
                out.writerow([user, f"+{number}", at, 59.0, 25.0])
        summary = sanitize_files([plain, *sources], Path(name, "out.csv"), m)
        with Path(name, "out.csv").open(encoding="utf-8", newline="") as file:
            spent = math.fsum(float(row["cost"]) for row in csv.DictReader(file))
        assert (summary.users, summary.traces, summary.points) == (1, 1, 30)
        assert summary.released == 5
        assert spent <= BUDGET


def test_a_retry_with_another_spelling_is_the_same_release() -> None:
    """Otherwise one place would be released twice, with two draws of noise."""
    key = hereish.KeyedDraws(b"k" * 32)
    releases = [
        sanitize_frame(frame_of([user] * 3), M, user="user", draws=key)[["lat", "lon"]]
        for user in (7, 7.0, "7", " 7.0", "７", "+7")
    ]
    for other in releases[1:]:
        assert other.equals(releases[0])


def test_fractions_that_may_have_been_other_numbers_are_refused() -> None:
    """As a float, 2**53 + 1 is 2**53: somebody else, or the same person under another name."""
    with pytest.raises(ParameterError, match="read it as integers or texts"):
        sanitize_frame(frame_of([float(2**53)] * 3), M, user="user")
    assert len(sanitize_frame(frame_of([2**53 + 1] * 3), M, user="user")) == 3


# Windows


@dataclass(frozen=True)
class Table:
    """A window of one's own: a number for each minute."""

    numbers: tuple[int, ...]

    def index(self, at_s: Any) -> Any:
        minutes = (np.asarray(at_s) // 60).astype(np.int64)
        return np.array(self.numbers, dtype=np.int64)[minutes % len(self.numbers)]

    def covers(self, index: int | None = None) -> str:
        return "the reports of each window"


def rows_at(minutes: Sequence[int]) -> tuple[Any, Any, Any]:
    at_s = np.asarray(minutes, dtype=np.float64) * 60.0
    points = np.column_stack([60.0 + np.arange(len(at_s)) * 0.01, np.full(len(at_s), 25.0)])
    return np.zeros(len(at_s), dtype=np.int64), points, at_s


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.integers(-3, 3), min_size=12, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=3).map(sorted),
    shared=st.booleans(),
)
def test_there_is_never_more_than_one_budget_for_a_window(
    numbers: list[int], cuts: list[int], shared: bool
) -> None:
    """Whatever a window of one's own says: no number has a second budget, or nothing comes out."""
    m = hereish.independent(PRIVACY, reports=1, window=Table(tuple(numbers)))
    budgets = Budgets(m) if shared else None
    minutes = list(range(12))
    parts = np.split(np.array(minutes), cuts) if shared else [np.array(minutes)]
    releases = 0
    rising = True
    for part in parts:
        user, points, at_s = rows_at(part.tolist())
        seen = [numbers[minute] for minute in minutes[: int(part[-1]) + 1]] if len(part) else []
        falls = any(b < a for a, b in itertools.pairwise(seen))
        if falls:
            rising = False
            with pytest.raises(PartError, match="fall as time goes on"):
                sanitize_rows(m, user, ["ann"], points, at_s, budgets=budgets)
            break
        out = sanitize_rows(m, user, ["ann"], points, at_s, budgets=budgets)
        releases += int(out.released.sum())
    if rising:
        assert releases == len(set(numbers))


def test_a_window_that_falls_between_users_is_found_too() -> None:
    """It is a function of time alone, so two users must not see it rise and fall."""
    m = hereish.independent(PRIVACY, reports=1, window=Table((5, 3)))
    _, points, at_s = rows_at([0, 1])
    with pytest.raises(PartError, match="fall as time goes on"):
        sanitize_rows(m, np.array([0, 1]), ["ann", "bob"], points, at_s)


@pytest.mark.parametrize("numbers", [np.array([0.5, 1.5]), np.array([0])])
def test_a_window_without_whole_numbers_is_refused(numbers: Any) -> None:
    class Odd(Table):
        def index(self, at_s: Any) -> Any:
            return numbers

    with pytest.raises(PartError, match="whole numbers"):
        hereish.independent(PRIVACY, reports=1, window=Odd((0,)))
    m = hereish.independent(PRIVACY, reports=1, window=Table((0, 1)))
    user, points, at_s = rows_at([0, 1])
    with pytest.raises(PartError, match="a whole number for each time"):
        object.__setattr__(m, "window", Odd((0,)))
        sanitize_rows(m, user, ["ann"], points, at_s)


def test_masked_rows_are_refused_and_not_unmasked() -> None:
    user, points, at_s = rows_at([0, 1, 2])
    hidden = np.ma.masked_array(points, mask=[[False, False], [False, True], [False, False]])
    with pytest.raises(PointError, match="row 1: its points are masked"):
        sanitize_rows(M, user, ["ann"], hidden, at_s)
    with pytest.raises(PointError, match="row 2: its at_s are masked"):
        sanitize_rows(M, user, ["ann"], points, np.ma.masked_array(at_s, mask=[False, False, True]))
    assert sanitize_rows(M, user, ["ann"], np.ma.masked_array(points), at_s).released.all()
