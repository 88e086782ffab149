"""Round trips on real files: every point is accounted for, and nothing of the truth comes out."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.errors import PointError
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.files import load_rows, sanitize_files
from hereish.traces.formats.registry import FORMATS, WRITTEN_NAMES
from hereish.traces.table import RowBatch
from tests.support.paths import DATA

PRIVACY = hereish.Privacy(math.log(10), 100)
DAILY = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("Asia/Shanghai"))
GEOLIFE, TDRIVE = DATA / "geolife-raw", DATA / "tdrive-raw"
BEIJING = ZoneInfo("Asia/Shanghai")
HOUR = DATA / "tdrive-window.csv.gz"  # of 8,643 taxis: a tree of it would be as many files
NAMED = (
    "csv",
    "tsv",
    "geojson",
    "parquet",
    "geoparquet",
    "gpkg",
    "mfjson",
)  # formats that keep the names of columns
ROUNDS = [
    *((GEOLIFE, Columns(zone=BEIJING), form) for form in WRITTEN_NAMES),
    *((TDRIVE, Columns(zone=BEIJING), form) for form in WRITTEN_NAMES),
    *((HOUR, Columns(user="id", zone=BEIJING), form) for form in ("gpx", *NAMED)),
]

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the real traces (../shared/data) are not on this machine"
)


@cache
def lines_of(path: Path) -> int:
    """Points of files as published, counted without any reader of ours."""
    if path == GEOLIFE:
        return sum(len(p.read_text().splitlines()) - 6 for p in path.rglob("*.plt"))
    return sum(len(p.read_text().splitlines()) for p in path.rglob("*.txt"))


@pytest.mark.parametrize(("source", "columns", "form"), ROUNDS)
def test_every_point_goes_through_every_format(
    tmp_path: Path, source: Path, columns: Columns, form: str
) -> None:
    """All of it is released (untested once the budget is spent), written, and read again."""
    m = hereish.fixed_utility(
        PRIVACY, 3000, window=hereish.Day("Asia/Shanghai"), on_exhausted="predict"
    )
    out = tmp_path / (
        "tree" if form in ("geolife", "tdrive") else f"out{FORMATS[form].extensions[0]}"
    )
    summary = sanitize_files([source], out, m, columns=columns, drop_bad=True, to_form=form)
    assert summary.refused == 0
    assert summary.points == summary.released + sum(summary.bad.values())
    if source != HOUR:
        assert summary.points == lines_of(source)
    true = true_keys(source, columns)
    back = columns if form in NAMED else Columns(zone=BEIJING)
    again = load_rows([str(out)], back, form=form, drop_bad=True)
    assert len(true) == summary.released
    if form == "tdrive" and source == GEOLIFE:  # it has no traces, so that theirs may overlap
        assert len(again) >= 0.99 * len(true)
    else:
        assert keys(again) == true


@cache
def true_keys(source: Path, columns: Columns) -> list[tuple[str, int]]:
    """Of the source itself; the same for every format."""
    return keys(load_rows([str(source)], columns, drop_bad=True))


def keys(batch: RowBatch) -> list[tuple[str, int]]:
    """Whose and when, of all rows; a T-Drive or GeoLife id may have been made a file's name."""
    users = [""] * len(batch) if batch.user is None else map(str, batch.user.values())
    return sorted(zip(users, batch.at_us.tolist(), strict=True))


def test_the_published_files_have_the_faults_they_are_known_for(tmp_path: Path) -> None:
    high = GEOLIFE / "Data/020/Trajectory/20110911000506.plt"
    with pytest.raises(PointError, match=r"20110911000506\.plt, line \d+: its lat") as wrong:
        sanitize_files([high], tmp_path / "out.csv", DAILY)
    line = int(re.findall(r"line (\d+)", str(wrong.value))[0])
    assert high.read_text().splitlines()[line - 1].startswith("400.1")
    assert "400" not in str(wrong.value).split("line")[1].replace(str(line), "")
    summary = sanitize_files([high], tmp_path / "out.csv", DAILY, drop_bad=True)
    assert summary.bad[FAULT_REASONS[Fault.LAT_RANGE]] == 1


def test_a_clock_that_starts_in_the_year_2000_is_found_among_later_points(tmp_path: Path) -> None:
    cold = (GEOLIFE / "Data/163/Trajectory/20000101231219.plt").read_text().splitlines()
    warm = (GEOLIFE / "Data/153/Trajectory/20080426123357.plt").read_text().splitlines()
    both = tmp_path / "both.plt"
    both.write_text("\n".join(cold + warm[6:]) + "\n")
    with pytest.raises(PointError, match=r"both\.plt, line 7: its clock jumps"):
        sanitize_files([both], tmp_path / "out.csv", DAILY)
    summary = sanitize_files([both], tmp_path / "out.csv", DAILY, drop_bad=True)
    assert summary.bad[FAULT_REASONS[Fault.JUMP]] == len(cold) - 6


def test_no_true_coordinate_comes_out(tmp_path: Path) -> None:
    """Their texts are too long to be met by chance."""
    true = set(re.findall(r"\d+\.\d{6,}", "".join(p.read_text() for p in GEOLIFE.rglob("*.plt"))))
    assert len(true) > 10_000
    for form in ("gpx", "geojson", "csv"):
        out = tmp_path / f"out.{form}"
        sanitize_files([GEOLIFE], out, DAILY, drop_bad=True)
        text = out.read_text()
        written = set(re.findall(r"\d+\.\d{6,}", text))
        assert not written & true


def test_cabs_by_the_day(tmp_path: Path) -> None:
    cabs, out = DATA / "cabspotting.parquet", tmp_path / "out.parquet"
    m = hereish.fixed_rate(PRIVACY, 30, window=hereish.Day("America/Los_Angeles"))
    summary = sanitize_files([cabs], out, m, every_s=1800.0, jobs=2)
    assert summary.points == 2_022_965
    assert summary.points == summary.released + summary.refused + summary.thinned
    assert summary.users == 314
    written = pq.read_table(out)
    assert len(written) == summary.released
    user = np.unique(written["user"].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    at_us = written["at"].cast("int64").to_numpy() * 1000
    window = m.window.index(at_us / 1e6)
    assert window is not None
    spent = np.zeros((user.max() + 1, np.ptp(window) + 1))
    np.add.at(spent, (user, window - window.min()), written["cost"].to_numpy())
    assert spent.max() <= PRIVACY.eps_per_m
    assert spent.max() > 0.9 * PRIVACY.eps_per_m


def test_traces_of_a_large_table_across_its_pieces(tmp_path: Path) -> None:
    """Two and a half million rows, so that traces lie across the ends of batches."""
    source, part = pq.ParquetFile(DATA / "geolife.parquet"), tmp_path / "part.parquet"
    pq.write_table(source.read_row_groups([0, 1]).slice(0, 2_000_000), part)
    m = hereish.fixed_utility(PRIVACY, 3000, window=EachTrace())
    out = tmp_path / "out.parquet"
    summary = sanitize_files([part], out, m, drop_bad=True)
    assert summary.points == summary.released + summary.refused + sum(summary.bad.values())
    written = pq.read_table(out).group_by(["user", "trace"]).aggregate([("cost", "sum")])
    costs = written["cost_sum"].to_numpy()
    assert len(costs) == summary.traces
    assert costs.max() <= PRIVACY.eps_per_m
