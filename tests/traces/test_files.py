"""Files are sanitised: budgets, units, thinning, faults, seeds."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import datetime, timedelta
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

import hereish
from hereish.errors import PointError
from hereish.traces import pipeline, reading
from hereish.traces.budgets import EachTrace
from hereish.traces.files import sanitize_files
from tests.support.trace_tables import (
    BUDGET,
    NOON,
    PRIVACY,
    M,
    accounted,
    released,
    rows,
    spent,
    table,
)


def test_one_budget_for_a_user_and_day_across_files_in_any_order(tmp_path: Path) -> None:
    morning = table(tmp_path / "b.csv", rows("ann", 20) + rows("bob", 3))
    evening = table(tmp_path / "a.csv", rows("ann", 20, NOON + timedelta(hours=6)))
    out = tmp_path / "out.csv"
    summary = sanitize_files([evening, morning], out, M)
    assert accounted(summary)
    assert (summary.users, summary.files, summary.points) == (2, 2, 43)
    costs = spent(released(out))
    assert costs["ann"] <= BUDGET
    assert costs["ann"] > 0.8 * BUDGET  # the budget was there to be used, by the morning
    times = [row["time"] for row in released(out) if row["user"] == "ann"]
    assert max(times) < "2026-05-05T13"
    alone = sanitize_files([evening], tmp_path / "alone.csv", M)
    assert alone.released > 0  # the control: by itself the evening is released


def test_two_days_have_two_budgets_and_no_reset_has_one(tmp_path: Path) -> None:
    two = rows("ann", 20) + rows("ann", 20, NOON + timedelta(days=1))
    source, out = table(tmp_path / "in.csv", two), tmp_path / "out.csv"
    sanitize_files([source], out, M)
    assert BUDGET < spent(released(out))["ann"] <= 2 * BUDGET
    sanitize_files([source], out, hereish.fixed_utility(PRIVACY, 3000))
    assert spent(released(out))["ann"] <= BUDGET


def test_a_trace_can_have_a_budget(tmp_path: Path) -> None:
    two = [("ann", k, *row[1:]) for k in "xy" for row in rows("ann", 20)]
    source = table(tmp_path / "in.csv", two, "user,trace,time,lat,lon")
    out = tmp_path / "out.csv"
    m = hereish.fixed_utility(PRIVACY, 3000, window=EachTrace())
    summary = sanitize_files([source], out, m)
    assert summary.traces == 2
    assert "each trace" in summary.guarantee
    for trace in "12":  # their names are not published
        costs = [float(row["cost"]) for row in released(out) if row["trace"] == trace]
        assert 0.8 * BUDGET < math.fsum(costs) <= BUDGET


def test_the_day_is_that_of_the_time_zone(tmp_path: Path) -> None:
    # One evening in UTC is two days in Tokyo.
    source = table(tmp_path / "in.csv", rows("ann", 40, NOON + timedelta(hours=2), 300.0))
    out = tmp_path / "out.csv"
    tokyo = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("Asia/Tokyo"))
    sanitize_files([source], out, tokyo)
    assert spent(released(out))["ann"] > BUDGET
    sanitize_files([source], out, M)
    assert spent(released(out))["ann"] <= BUDGET


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_units_of_any_size_keep_the_budget_and_every_point(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small units stand for large files.
    monkeypatch.setattr(pipeline, "BATCH_ROWS", batch)
    parts = [
        table(tmp_path / f"{i}.csv", rows("ann", 9, NOON + timedelta(minutes=9 * i)))
        for i in range(6)
    ]
    out = tmp_path / "out.csv"
    summary = sanitize_files(parts, out, M)
    assert accounted(summary)
    assert summary.points == 54
    assert 0.8 * BUDGET < spent(released(out))["ann"] <= BUDGET


def test_a_part_that_comes_too_late_is_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "BATCH_ROWS", 4)
    late = table(tmp_path / "late.csv", rows("ann", 4, NOON - timedelta(hours=1)))
    first = table(tmp_path / "first.csv", rows("ann", 4))
    out = tmp_path / "out.csv"
    summary = sanitize_files([first, late], out, M)
    assert accounted(summary)
    assert (summary.points, summary.files, sum(summary.bad.values())) == (8, 2, 0)
    times = [row["time"] for row in released(out)]
    assert times == sorted(times)
    assert times[0].startswith("2026-05-05T11:00")


def test_thinning_keeps_reports_apart_across_files(tmp_path: Path) -> None:
    first = table(tmp_path / "a.csv", rows("ann", 100, step_s=10.0))
    then = table(tmp_path / "b.csv", rows("ann", 100, NOON + timedelta(seconds=1005), 10.0))
    out = tmp_path / "out.csv"
    summary = sanitize_files([first, then], out, M, every_s=300.0)
    assert accounted(summary)
    assert summary.thinned == 200 - 7
    times = [datetime.fromisoformat(row["time"]) for row in released(out)]
    assert all(b - a >= timedelta(minutes=5) for a, b in itertools.pairwise(times))


def test_bad_rows_stop_it_by_default_and_are_counted_when_dropped(tmp_path: Path) -> None:
    some = rows("ann", 5)
    some[3] = ("ann", some[3][1], 400.171234, 24.9)
    source, out = table(tmp_path / "in.csv", some), tmp_path / "out.csv"
    with pytest.raises(PointError, match=r"in\.csv, line 5: its latitude is outside") as wrong:
        sanitize_files([source], out, M)
    assert "171234" not in str(wrong.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv"]  # not even an unfinished one
    with pytest.raises(PointError, match=r"1 of 5 points \(its latitude is outside.*=all"):
        sanitize_files([source], out, M, drop_bad=True)
    assert not out.exists()
    summary = sanitize_files([source], out, M, drop_bad="all")
    assert accounted(summary)
    assert list(summary.bad.values()) == [1]
    assert len(released(out)) == 4


def test_if_nothing_can_be_used_nothing_is_written(tmp_path: Path) -> None:
    swapped = [(user, at, float(str(lon)) * 5, lat) for user, at, lat, lon in rows("ann", 3)]
    source, out = table(tmp_path / "in.csv", swapped), tmp_path / "out.csv"
    with pytest.raises(PointError, match=r"line 2: .*swapped\?"):
        sanitize_files([source], out, M)
    empty = tmp_path / "empty.gpx"
    empty.write_text("")
    for name in (source, str(empty)):
        with pytest.raises(PointError, match="no points that can be used"):
            sanitize_files([name], out, M, drop_bad=True)
    assert not out.exists()


def test_the_same_seed_gives_the_same_file_whatever_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_WORTH_PROCESSES", 0)  # so that these few bytes are worth them
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(4):
        table(folder / f"{i}.csv", rows(f"user {i % 2}", 2000, step_s=1.0 + i))
    outs = []
    for jobs in (1, 3):
        out = tmp_path / f"{jobs}.csv"
        summary = sanitize_files([folder], out, M, seed=5, jobs=jobs, every_s=60.0)
        assert not summary.private
        assert summary.guarantee.startswith("NOT PRIVATE")
        outs.append(out.read_bytes())
    assert outs[0] == outs[1]
    sanitize_files([folder], tmp_path / "secure.csv", M, every_s=60.0)
    assert (tmp_path / "secure.csv").read_bytes() != outs[0]


@pytest.mark.parametrize("nth", [1, 3])
def test_a_file_whose_reader_is_killed_is_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """As the system does where memory is short. It was reported as a defect of hereish."""
    monkeypatch.setattr(reading, "_WORTH_PROCESSES", 0)
    folder, submitted = tmp_path / "in", []
    folder.mkdir()
    for i in range(7):
        table(folder / f"{i}.csv", rows(f"user {i % 2}", 200, step_s=1.0 + i))

    class Killed(ProcessPoolExecutor):
        def submit(self, *given: Any, **named: Any) -> Future[Any]:
            future = super().submit(*given, **named)
            submitted.append(future)
            if len(submitted) == nth:
                for process in active_children():
                    process.kill()
                    process.join()
            return future

    alone, out = tmp_path / "alone.csv", tmp_path / "out.csv"
    sanitize_files([folder], alone, M, seed=5, every_s=60.0)
    monkeypatch.setattr(reading, "ProcessPoolExecutor", Killed)
    sanitize_files([folder], out, M, seed=5, jobs=2, every_s=60.0)
    assert len(submitted) >= nth
    assert out.read_bytes() == alone.read_bytes()
