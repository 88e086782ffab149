"""Outputs of independent noise carry the second promise; others, and seeded ones, none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import hereish
from hereish import ParameterError
from hereish.audit import audit
from hereish.core.accounting import SecondPromise
from hereish.forecast import adds_up, forecast, outlook
from hereish.traces.files import read_guarantee, sanitize_files
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.job_budget import check_shared_budget

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
DAY = hereish.Day("UTC")
ALONE = hereish.independent(PRIVACY, reports=30, window=DAY)
ROWS = "user,at,lat,lon\n" + "".join(
    f"ann,2026-05-05T{hour:02}:00:00Z,60.17,24.94\n" for hour in range(5)
)


@pytest.fixture
def day(tmp_path: Path) -> str:
    path = tmp_path / "day.csv"
    path.write_text(ROWS, "utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["out.csv", "out.geojson", "out.parquet"])
def test_metadata_and_summary_state_it(day: str, tmp_path: Path, name: str) -> None:
    out = str(tmp_path / name)
    summary = sanitize_files([day], out, ALONE)
    about = read_guarantee(out)
    assert about is not None
    assert about.second == summary.second
    assert about.second is not None
    assert about.second.factor == pytest.approx(3.42, abs=0.01)
    assert about.second.statement.startswith("For each user, the reports of each day (UTC): ")
    assert "chosen before anything was released" in about.second.statement
    assert "at most 10 times" in about.statement, "never in place of the first"


def test_what_has_none_says_nothing_of_it(day: str, tmp_path: Path) -> None:
    seeded = sanitize_files([day], str(tmp_path / "seeded.csv"), ALONE, seed=1)
    paced = sanitize_files([day], str(tmp_path / "p.csv"), hereish.whole_day(PRIVACY, window=DAY))
    as_it_was = sanitize_files([day], str(tmp_path / "input.csv"), ALONE, order="input")
    assert seeded.second is None
    assert paced.second is None
    assert as_it_was.second is None, "the order of the rows is not covered"
    about = read_guarantee(str(tmp_path / "p.csv"))
    assert about is not None
    assert "delta" not in about.as_dict()


def test_metadata_come_back_as_they_were_and_nonsense_is_left_out() -> None:
    second = SecondPromise(1.2, 1e-6, "For all reports together: …")
    full = GuaranteeMetadata("…", eps_per_m=1.0, prior="cities", second=second)
    plain = full.as_dict()
    assert GuaranteeMetadata.from_dict(plain) == full
    for wrong in (
        {"delta": 3},
        {"level_at_delta": -1.0},
        {"level_at_delta": "x"},
        {"delta": None},
        {"guarantee_at_delta": 1},
    ):
        about = GuaranteeMetadata.from_dict(plain | wrong)
        assert about is not None
        assert about.second is None


def test_what_counts_in_levels_alone_refuses_a_delta(day: str, tmp_path: Path) -> None:
    """Their promises, metadata and numbers are of budgets without one."""
    delta = hereish.independent(
        hereish.Privacy(level=math.log(10), radius_m=100, delta=1e-6), reports=30, window=DAY
    )
    out = tmp_path / "out.csv"
    for refuses in (
        lambda: sanitize_files([day], str(out), delta),
        lambda: outlook(delta),
        lambda: adds_up(delta),
        lambda: forecast(delta, 1800.0),
        lambda: audit(delta, runs=1000),
        lambda: check_shared_budget(delta),
    ):
        with pytest.raises(ParameterError, match="without a delta alone, found delta=1e-06"):
            refuses()
    assert not out.exists(), "nothing was written"
