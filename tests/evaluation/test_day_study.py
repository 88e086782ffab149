"""The study of whole days: its table, its seeds, its figure."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.core.settings import PRESETS
from hereish.errors import ParameterError
from hereish.evaluation import dataset, day_study
from hereish.evaluation.day_study import DayStudy
from hereish.evaluation.figures.files import draw_days
from hereish.evaluation.figures.hours import hours_figure
from hereish.evaluation.study import write_table
from hereish.evaluation.study_settings import StudySettings
from hereish.synthetic import TIME_ZONE
from tests.support.study_figures import png_size

COLUMNS = (
    *("dataset", "mechanism", "preset", "every_s", "days", "users", "queries"),
    *("belief_mean_m", "belief_median_m", "belief_p90_m", "belief_p99_m"),
    *("answered_share", "spent_share"),
)
SMALL = DayStudy(every_s=(1800.0, 3600.0), samples=2)


@pytest.fixture(scope="module")
def city() -> dataset.Trajectories:
    return dataset.synthetic_days(users=8, days=3)


@pytest.fixture(scope="module")
def results(city: dataset.Trajectories) -> day_study.DayResults:
    return day_study.run(SMALL, [(city, TIME_ZONE)])


def test_the_mechanisms_are_planned_for_a_day_and_keep_its_budget() -> None:
    window = hereish.Day(TIME_ZONE)
    privacy = StudySettings().privacy
    for every_s, reports in ((900.0, 96), (1800.0, 48), (3600.0, 24), (86400.0, 2)):
        compared = day_study.mechanisms(StudySettings(), every_s, window)
        names = [one.name for one in compared]
        assert len(set(names)) == len(names)
        assert {"independent", "whole_day", "fixed_utility", "fixed_utility_skip"} <= set(names)
        for _, _, m in compared:
            assert m.window == window
            assert m.privacy == privacy
            assert m.on_exhausted == "stop"
        by_name = {one.name: one.mechanism.fingerprint for one in compared}
        independent = hereish.independent(privacy, reports=reports, window=window)
        assert by_name["independent"] == independent.fingerprint
        rate = hereish.fixed_rate(privacy, reports, window=window)
        assert by_name["fixed_rate"] == rate.fingerprint


def test_every_preset_is_compared_as_it_comes() -> None:
    window = hereish.Day(TIME_ZONE)
    for every_s in (900.0, 3600.0):
        compared = day_study.mechanisms(StudySettings(accuracy_m=2000.0), every_s, window)
        by_preset = {one.preset: one.mechanism for one in compared if one.preset is not None}
        assert list(by_preset) == list(PRESETS)
        ready = hereish.whole_day(
            StudySettings().privacy, every=timedelta(seconds=every_s), window=window
        )
        assert by_preset["whole-day"].fingerprint == ready.fingerprint
        paper = hereish.fixed_utility(StudySettings().privacy, 2000.0, window=window)
        assert by_preset["paper-utility"].fingerprint == paper.fingerprint


def test_a_table_has_a_row_per_interval_and_mechanism(
    results: day_study.DayResults, tmp_path: Path
) -> None:
    write_table(results.rows, tmp_path / "days.parquet")
    table = pq.read_table(tmp_path / "days.parquet").to_pylist()
    assert table == results.rows
    assert set(COLUMNS) <= set(table[0])
    keys = [(row["dataset"], row["mechanism"], row["every_s"]) for row in table]
    compared = day_study.mechanisms(StudySettings(), 1800.0, hereish.Day(TIME_ZONE))
    assert len(set(keys)) == len(keys) == 2 * len(compared)
    for row in table:
        assert (row["days"], row["users"]) == (24, 8)
        assert row["queries"] == 24 * 86400 / row["every_s"]
        assert row["time_zone"] == TIME_ZONE
        assert row["samples"] == 2
        assert 0.0 < row["spent_share"] <= 1.0
        assert row["belief_median_m"] < row["belief_p90_m"] < row["belief_p99_m"]
        for name in ("belief_mean_m", "belief_p90_m", "belief_p99_m"):
            assert row[f"{name}_lo"] <= row[name] <= row[f"{name}_hi"]
    by_name = {(row["mechanism"], row["every_s"]): row for row in table}
    independent = by_name["independent", 1800.0]
    assert (independent["answered_share"], independent["ended_share"]) == (1.0, 0.0)
    assert independent["ended_first_hour"] is None
    assert by_name["fixed_utility_skip", 1800.0]["ended_share"] > 0.9
    assert by_name["whole_day", 1800.0]["ended_before_22_share"] == 0.0


def test_the_same_rows_whatever_the_threads(
    city: dataset.Trajectories,
    results: day_study.DayResults,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[tuple[int, int]] = []
    again = day_study.run(
        SMALL, [(city, TIME_ZONE)], jobs=3, progress=lambda *counts: done.append(counts)
    )
    assert again == results
    assert done[-1] == (len(results.rows), len(results.rows))
    other = day_study.run(DayStudy(every_s=SMALL.every_s, samples=2, seed=2), [(city, TIME_ZONE)])
    assert other != results
    monkeypatch.setattr(day_study, "_POINTS_AT_ONCE", 1)  # samples one after the other
    apart = day_study.run(SMALL, [(city, TIME_ZONE)]).rows
    for one, row in zip(apart, results.rows, strict=True):
        assert one["belief_mean_m"] == pytest.approx(row["belief_mean_m"], rel=0.2)
        assert (one["days"], one["queries"]) == (row["days"], row["queries"])


def test_fewer_users_are_drawn_by_the_seed(city: dataset.Trajectories) -> None:
    few = DayStudy(samples=1, most_users=3)
    first = day_study.run(few, [(city, TIME_ZONE)])
    assert {(row["users"], row["days"]) for row in first.rows} == {(3, 9)}
    assert day_study.run(few, [(city, TIME_ZONE)]) == first
    with pytest.raises(ParameterError, match="samples must be at least 1"):
        DayStudy(samples=0)


def test_the_figure_shows_each_mechanism_over_the_hours(
    results: day_study.DayResults, tmp_path: Path
) -> None:
    written = draw_days(results.hours, tmp_path)
    assert [path.name for path in written] == [
        "synthetic-days-30min.png",
        "synthetic-days-60min.png",
    ]
    assert {png_size(path) for path in written} == {(1800, 750)}
    assert draw_days([], tmp_path / "none") == []
    own = [row for row in results.hours if row["every_s"] == 1800.0]
    for axes, column in zip(hours_figure(own).axes, ("mean", "p90"), strict=True):
        lines = {str(line.get_label()): line for line in axes.get_lines()}
        assert list(lines)[:2] == ["independent", "whole-day"]
        for name, line in lines.items():
            rows = [row for row in own if day_study.describe_mechanism(row) == name]
            np.testing.assert_allclose(
                np.asarray(line.get_ydata()), [row[f"belief_{column}_m"] / 1000 for row in rows]
            )
            np.testing.assert_allclose(np.asarray(line.get_xdata()), np.arange(24) + 0.5)


def test_a_preset_goes_by_its_name() -> None:
    row: dict[str, str | None] = {"mechanism": "fixed_rate", "preset": "paper-rate"}
    assert day_study.describe_mechanism(row) == "paper-rate"
    row = {"mechanism": "fixed_rate_skip", "preset": None}
    assert day_study.describe_mechanism(row) == "fixed rate, skip"


def test_held_out_users_are_those_that_are_not_tuned_on(city: dataset.Trajectories) -> None:
    training = dataset.split_users(8, 0.5, 1)
    results = day_study.run(DayStudy(samples=1, held_out=True), [(city, TIME_ZONE)])
    own = city.take(~training[city.user])
    alone = day_study.run(DayStudy(samples=1), [(own, TIME_ZONE)])
    assert [row["users"] for row in results.rows] == [4] * len(results.rows)
    for row, other in zip(results.rows, alone.rows, strict=True):
        assert row["belief_mean_m"] == other["belief_mean_m"]
    unseen = city.take(training[city.user])
    with pytest.raises(ParameterError, match="no held-out user"):
        day_study.run(DayStudy(samples=1, held_out=True), [(unseen, TIME_ZONE)])
