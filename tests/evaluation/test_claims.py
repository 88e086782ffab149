"""The headline claims of the paper, on the real data, with one sample a trace."""

from __future__ import annotations

from typing import Any

import pytest

from hereish.evaluation import dataset, study
from hereish.evaluation.break_even import find_payoff
from hereish.evaluation.study_settings import StudySettings
from tests.support.paths import DATA

ASKED = study.Study(ps=(0.0, 0.1, 0.2, 0.5, 0.6, 1.0), samples=2)


def rows_of(name: str, asked: study.Study, sampling: study.Sampling) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"needs {name}, which is not ours to ship")
    found = dataset.load([str(path)], jobs=2)
    return [
        row
        for cell in study.cells(asked, found, "x", (sampling,))
        for row in study.compute(asked, cell)
    ]


@pytest.fixture(scope="module")
def geolife() -> list[dict[str, Any]]:
    return rows_of("geolife.parquet", ASKED, "authors")


def curve(rows: list[dict[str, Any]], mechanism: str, manager: str, skip: bool) -> dict[float, Any]:
    return {
        row["p"]: row
        for row in rows
        if (row["mechanism"], row["manager"], row["skip"]) == (mechanism, manager, skip)
    }


def test_fixed_rate_improves_the_error_at_every_p(geolife: list[dict[str, Any]]) -> None:
    theirs = curve(geolife, "independent", "fixed_rate", False)
    for skip in (False, True):
        for p, row in curve(geolife, "predictive", "fixed_rate", skip).items():
            assert theirs[p]["error_mean_m"] - row["error_mean_m"] >= 500
            # The least margin, at p = 0.6 with skip, is 1218 m over ten samples; two are rougher.
            slack = (row["error_p90_m_hi"] - row["error_p90_m_lo"]) / 2
            assert theirs[p]["error_p90_m"] - row["error_p90_m"] >= 1200 - slack


def test_fixed_utility_saves_budget(geolife: list[dict[str, Any]]) -> None:
    plain = curve(geolife, "predictive", "fixed_utility", False)
    skipping = curve(geolife, "predictive", "fixed_utility", True)
    assert min(row["rate"] for row in plain.values()) <= 0.041
    assert min(row["rate"] for row in skipping.values()) <= 0.021


def test_fixed_utility_keeps_the_error_under_the_independent_one(
    geolife: list[dict[str, Any]],
) -> None:
    theirs = curve(geolife, "independent", "fixed_utility", False)
    for p, row in curve(geolife, "predictive", "fixed_utility", False).items():
        slack = (row["error_mean_m_hi"] - row["error_mean_m_lo"]) / 2 if p == 1.0 else 0.0
        assert row["error_mean_m"] < theirs[p]["error_mean_m"] + slack
        assert row["error_p90_m"] < theirs[p]["error_p90_m"] + 2 * slack


def test_taxis_stop_paying_off_where_the_paper_says() -> None:
    """By the authors' rules at the break-even; by ours, which spare the first test, later."""
    for as_published in (True, False):
        asked = study.Study(
            settings=StudySettings(as_published=as_published), ps=(0.6, 0.7, 0.8, 0.9), samples=2
        )
        found = find_payoff(rows_of("cabspotting.parquet", asked, "authors"), asked.settings)
        assert found.prediction_crosses == pytest.approx(0.71, abs=0.04)
        assert found.rate_crosses is not None
        if as_published:
            assert found.rate_crosses == pytest.approx(found.prediction_crosses, abs=0.03)
        else:
            assert 0.75 < found.rate_crosses < 0.85
