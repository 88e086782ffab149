"""The order of rows tells no places: files."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish.errors import PointError
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows, sanitize_files
from hereish.viewer.pairs import pair_points
from tests.support.permuted_traces import (
    BY_DAY,
    DIFFERENT,
    FIXES,
    INPUTS,
    MECHANISMS,
    OUTPUTS,
    Fix,
    permuted,
    rows_of,
    small_units,
    structure,
    told,
    write_csv,
)


@pytest.mark.parametrize("form", INPUTS)
@settings(max_examples=15, deadline=None)
@given(
    both=permuted(DIFFERENT),
    target=st.sampled_from(OUTPUTS),
    rows=st.sampled_from([1, 2, 3, 100]),
    m=MECHANISMS,
    every=st.sampled_from([None, 300.0]),
)
def test_a_file_in_any_order_gives_the_same_rows_in_the_same_order(
    form: str,
    both: tuple[list[Fix], list[Fix]],
    target: str,
    rows: int,
    m: hereish.PredictiveMechanism,
    every: float | None,
) -> None:
    found = []
    with TemporaryDirectory() as name:
        for i, fixes in enumerate(both):
            folder = Path(name, str(i))
            folder.mkdir()
            source = INPUTS[form](folder / "in", fixes)
            with small_units(rows):
                summary = sanitize_files(
                    [source], folder / target, m, every_s=every, columns=Columns(keep=("note",))
                )
            assert summary.points == summary.released + summary.refused + summary.thinned
            assert not [path for path in folder.iterdir() if path.name.startswith(".")]
            found.append((told(folder / target), structure(folder / target), summary.released))
    assert found[0] == found[1]
    assert len(found[0][0]) == found[0][2]


@settings(max_examples=15, deadline=None)
@given(both=permuted(FIXES), rows=st.sampled_from([1, 3, 100]), m=MECHANISMS)
def test_rows_of_one_time_that_are_left_out_are_not_chosen_by_their_order(
    both: tuple[list[Fix], list[Fix]], rows: int, m: hereish.PredictiveMechanism
) -> None:
    """With drop_bad, of several at one time one stays, and so do all that are out of order."""
    found = []
    with TemporaryDirectory() as name:
        for i, fixes in enumerate(both):
            source = write_csv(Path(name, f"in{i}"), fixes)
            out = Path(name, f"out{i}.csv")
            with small_units(rows):
                summary = sanitize_files(
                    [source], out, m, drop_bad=True, columns=Columns(keep=("note",))
                )
            assert sum(summary.bad.values()) == len(fixes) - len({fix[:3] for fix in fixes})
            found.append(told(out))
    assert found[0] == found[1]


@settings(max_examples=15, deadline=None)
@given(
    both=permuted(DIFFERENT),
    cuts=st.lists(st.integers(0, 14), min_size=2, max_size=2),
    rows=st.sampled_from([1, 3, 100]),
    to=st.sampled_from(["csv", "geojson", "parquet", "gpx", "geolife", "tdrive"]),
)
def test_a_file_for_each_user_tells_nothing_of_the_files_that_were_read(
    both: tuple[list[Fix], list[Fix]], cuts: list[int], rows: int, to: str
) -> None:
    """The same rows in other files and in another order: the same folder."""
    found = []
    with TemporaryDirectory() as name:
        for i, (fixes, cut) in enumerate(zip(both, cuts, strict=True)):
            folder = Path(name, str(i))
            folder.mkdir()
            parts = [part for part in (fixes[:cut], fixes[cut:]) if part]
            for number, part in enumerate(parts):
                write_csv(folder / f"part {number if i else 9 - number}", part)
            out = Path(name, f"out{i}")
            with small_units(rows):
                sanitize_files([folder], out, BY_DAY, to_form=to, split_by="user")
            files = sorted(path for path in out.rglob("*") if path.suffix != ".json")
            found.append(
                [(path.relative_to(out), rows_of(path)) for path in files if path.is_file()]
            )
    assert found[0] == found[1]
    assert found[0]


# Traces of one user that begin at one time are numbered at random.
AT_OTHER_TIMES = FIXES.map(
    lambda fixes: list({(fix.user, fix.minute): fix for fix in fixes}.values())
)


@settings(max_examples=15, deadline=None)
@given(both=permuted(AT_OTHER_TIMES), rows=st.sampled_from([1, 3, 100]))
def test_in_a_folder_each_file_is_in_order(both: tuple[list[Fix], list[Fix]], rows: int) -> None:
    found = []
    with TemporaryDirectory() as name:
        for i, fixes in enumerate(both):
            folder = Path(name, str(i))
            folder.mkdir()
            for part in ("x", "y", "2", "10"):
                own = [fix for fix in fixes if fix.trace == part]
                if own:
                    write_csv(folder / part, own)
            out = Path(name, f"out{i}")
            with small_units(rows):
                sanitize_files([folder], out, BY_DAY, columns=Columns(keep=("note",)))
            found.append({path.name: told(path) for path in out.glob("*.csv")})
    assert found[0] == found[1]


@settings(max_examples=15, deadline=None)
@given(fixes=DIFFERENT, rows=st.sampled_from([1, 3, 100]), m=MECHANISMS)
def test_the_order_of_the_input_is_kept_if_it_is_asked_for(
    fixes: list[Fix], rows: int, m: hereish.PredictiveMechanism
) -> None:
    with TemporaryDirectory() as name:
        source, out = write_csv(Path(name, "in"), fixes), Path(name, "out.csv")
        with small_units(rows):
            summary = sanitize_files(
                [source],
                out,
                m,
                order="input",
                columns=Columns(keep=("note",), keep_trace_names=True),
            )
        assert "which this does not cover" in summary.guarantee
        keys = [(user, trace, at) for user, trace, at, _ in told(out)]
        given_ = [(f.user, f.trace, round(f.time.timestamp() * 1e6)) for f in fixes]
        assert keys == [key for key in given_ if key in keys]
        about = json.loads(Path(f"{out}-metadata.json").read_text())["hereish"]
        assert "in the order of the input" in about["guarantee"]


def test_standard_input_that_would_have_to_be_read_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixes = [Fix("ann", "x", minute, 60.0, 25.0, "") for minute in (5, 4, 3, 2, 1)]
    source = write_csv(tmp_path / "in", fixes)
    out = tmp_path / "out.csv"
    with source.open("rb") as file, small_units(2):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        with pytest.raises(PointError, match="save them to a file first"):
            sanitize_files(["-"], out, BY_DAY)
    assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_standard_input_by_time_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users take turns, so rows must be merged, and cannot be read again."""
    fixes = [Fix(user, "x", minute, 60.0, 25.0, "") for minute in range(3) for user in ("b", "a")]
    source = write_csv(tmp_path / "in", fixes)
    out = tmp_path / "out.csv"
    with source.open("rb") as file, small_units(2):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        sanitize_files(["-"], out, BY_DAY, columns=Columns(keep=("note",)))
    assert [row[0] for row in told(out)] == ["a"] * 3 + ["b"] * 3


def test_no_true_place_is_in_a_file_that_is_not_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are merged in files without a name: what is written to them has been released."""
    written: list[bytes] = []
    dump = pickle.dump

    def watched(value: Any, file: Any) -> None:
        written.append(pickle.dumps(value))
        dump(value, file)

    monkeypatch.setattr(pickle, "dump", watched)
    fixes = [
        Fix(f"user {i % 7}", "x", i // 7, 59.0 + i / 1e3 + 1e-9, 25.0 + i / 1e4 + 1e-9, "")
        for i in range(100)
    ]
    source = write_csv(tmp_path / "in", fixes)
    with small_units(8):
        sanitize_files([source], tmp_path / "out.csv", BY_DAY)
    assert written
    everything = b"".join(written)
    for fix in fixes:
        for value in (fix.lat, fix.lon):
            assert np.float64(value).tobytes() not in everything


def test_a_report_is_shown_with_its_own_point_although_the_order_is_another(
    tmp_path: Path,
) -> None:
    """Two traces of one user at the same times, in the file the other way round."""
    true = [
        Fix("ann", trace, minute, 60.0 + (trace == "y"), 25.0, "")
        for trace in "yx"
        for minute in (0, 1)
    ]
    here, there = (
        load_rows([str(write_csv(tmp_path / name, fixes))], Columns())
        for name, fixes in (("true", true), ("reported", sorted(true)))
    )
    shown = pair_points(here, there, None, ZoneInfo("UTC"))
    assert shown.error_m.max() < 1.0
