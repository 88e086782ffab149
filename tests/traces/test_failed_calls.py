"""A call on Budgets that fails is as if it had never been made: no limit and no memory is lost."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hereish
from hereish import Day, Days, Forever, KeyedDraws, Month, Privacy, Run, SeededDraws
from hereish.core.types import Floats
from hereish.traces import budgets as budgets_module
from hereish.traces.budgets import Budgets, sanitize_rows
from hereish.traces.frames import sanitize_frame

PRIVACY = Privacy(math.log(10), 100.0)
KEY = KeyedDraws(b"k" * 32)
START_S = datetime(2024, 5, 1, 8, tzinfo=UTC).timestamp()
DAY_S = 86400.0
LIMITS = {"ever": Forever, "30 days": Days(30), "month": Month("UTC")}
LEVEL = 2.5
Rows = Sequence[tuple[str, float]]  # users and times
Call = Callable[[Any, Budgets, Rows], list[tuple[str, float, float, float]]]


def by_rows(m: Any, budgets: Budgets, rows: Rows, draws: Any = KEY) -> Any:
    """Users, places and costs of what is released."""
    user = np.array([ord(name) - ord("a") for name, _ in rows], dtype=np.int64)
    at_s = np.array([at_s for _, at_s in rows])
    points = np.tile([48.0, 2.0], (len(rows), 1))
    out = sanitize_rows(m, user, ["a", "b"], points, at_s, draws=draws, budgets=budgets)
    there = np.flatnonzero(out.released)
    values, costs = out.value[there].tolist(), out.cost[there].tolist()
    return [
        (rows[i][0], *value, cost)
        for i, value, cost in zip(there.tolist(), values, costs, strict=True)
    ]


def by_frame(m: Any, budgets: Budgets, rows: Rows) -> Any:
    times = pd.to_datetime([at_s for _, at_s in rows], unit="s", utc=True)
    frame = pd.DataFrame({"user": [name for name, _ in rows], "time": times, "lat": 48.0, "lon": 2})
    out = sanitize_frame(frame, m, user="user", draws=KEY, budgets=budgets)
    columns = (out[name].tolist() for name in ("user", "lat", "lon", "cost"))
    return list(zip(*columns, strict=True))


def day(name: str, number: int, reports: int = 9) -> Rows:
    return [(name, START_S + number * DAY_S + i) for i in range(reports)]


def contents(budgets: Budgets) -> Any:
    """All that budgets know, as it can be compared."""
    return (
        dict(budgets._lanes),
        {user: list(windows) for user, windows in budgets._windows_of.items()},
        [column.tolist() for column in budgets._windows],
        budgets._begun_with.tolist(),
        [field.tobytes() for field in budgets.run],
        [field.shape for field in budgets.run],
    )


def mechanisms(window: Any) -> dict[str, Any]:
    return {
        "independent": hereish.independent(PRIVACY, reports=5, window=window),
        "whole day": hereish.whole_day(PRIVACY, window=window),
    }


@pytest.mark.parametrize("call", [by_rows, by_frame], ids=["rows", "frame"])
@pytest.mark.parametrize("preset", ["independent", "whole day"])
@pytest.mark.parametrize("limit", LIMITS)
def test_failed_calls_between_good_ones_change_nothing(limit: str, preset: str, call: Call) -> None:
    m = mechanisms(Day("UTC") & LIMITS[limit].within(LEVEL))[preset]
    results = []
    for failing in (False, True):
        budgets = Budgets(m)
        out = call(m, budgets, [*day("a", 0), ("b", START_S + 50)])
        for number in range(1, 10):
            if failing:  # b reports before its last time; the same call begins a window of a
                before = contents(budgets)
                with pytest.raises(hereish.PointError, match="its user has a later report"):
                    call(m, budgets, [*day("a", 2 * number - 1, 1), ("b", START_S)])
                assert contents(budgets) == before
            out += call(m, budgets, day("a", 2 * number))
        results.append(out)
        spent = sum((Fraction(cost) for name, *_, cost in out if name == "a"), Fraction(0))
        assert 0 < spent <= Fraction(LEVEL / PRIVACY.radius_m)
    assert results[0] == results[1]


def test_a_tracker_keeps_what_it_has_learnt_over_a_failed_call() -> None:
    m = hereish.whole_day(PRIVACY, window=Day("UTC"))
    results = []
    for failing in (False, True):
        budgets = Budgets(m)
        by_rows(m, budgets, [*day("a", 0), ("b", START_S + 50)])
        if failing:
            with pytest.raises(hereish.PointError):
                by_rows(m, budgets, [*day("a", 1), ("b", START_S)])
        results.append(by_rows(m, budgets, day("a", 2)))
    assert results[0] == results[1]
    assert results[0] != by_rows(m, Budgets(m), day("a", 2)), "the control: it had learnt something"


def test_a_window_of_which_nothing_was_granted_hands_nothing_on() -> None:
    """Windows of a user may come in any order where there are no limits."""
    m = hereish.whole_day(PRIVACY, window=Day("UTC"))
    windows = m.window.index(START_S + DAY_S * np.arange(3.0))
    assert windows is not None
    zero, second, third = windows.tolist()

    def granted(keys: Sequence[tuple[str, int]], at_s: Floats) -> Floats:
        return np.array([0.0 if window == second else m.bound.total for _, window in keys])

    results = []
    for empty in (False, True):
        budgets = Budgets(m, granted)
        if empty:
            assert by_rows(m, budgets, day("a", 1)) == []
            assert budgets.is_last("a", zero)
        by_rows(m, budgets, day("a", 0))
        results.append(by_rows(m, budgets, day("a", 2)))
        assert budgets.is_last("a", third)
        assert not budgets.is_last("a", zero)
    assert results[0] == results[1]


class Interrupted(SeededDraws):
    """Numbers until somebody presses Ctrl-C."""

    calls = 0

    def uniforms(self, n: int, out: Any = None) -> Any:
        Interrupted.calls += 1
        if Interrupted.calls > 2:
            raise KeyboardInterrupt
        return super().uniforms(n, out=out)


@pytest.mark.parametrize("limit", LIMITS)
def test_an_interrupt_leaves_budgets_as_they_were(limit: str) -> None:
    m = mechanisms(Day("UTC") & LIMITS[limit].within(LEVEL))["whole day"]
    budgets = Budgets(m)
    by_rows(m, budgets, day("a", 0))
    before = contents(budgets)
    Interrupted.calls = 0
    with pytest.raises(KeyboardInterrupt):  # some of the days were gone through by then
        by_rows(
            m, budgets, [one for number in range(1, 9) for one in day("a", number)], Interrupted(3)
        )
    assert Interrupted.calls > 1
    assert contents(budgets) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("limits", [(), (hereish.Limit(Forever, LEVEL),)])
def test_a_part_that_raises_leaves_budgets_as_they_were(error: Any, limits: Any) -> None:
    fails_from_s = math.inf

    def repeat(run: Run, at_s: Floats) -> Floats:
        if (at_s >= fails_from_s).any():
            raise error
        return run.value

    m = hereish.fixed_utility(PRIVACY, 3000.0, window=Day("UTC"))
    m = replace(m, prediction=hereish.prediction(repeat), limits=limits)
    budgets = Budgets(m)
    by_rows(m, budgets, [*day("a", 0), *day("b", 0)])
    before = contents(budgets)
    fails_from_s = START_S + 2 * DAY_S
    expected = KeyboardInterrupt if error is KeyboardInterrupt else hereish.PartError
    with pytest.raises(expected):
        by_rows(m, budgets, [*day("a", 1), *day("a", 2), *day("b", 1)])
    assert contents(budgets) == before
    fails_from_s = math.inf
    assert by_rows(m, budgets, day("a", 1))


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("where", ["put_runs", "insort"])
def test_an_interrupt_while_they_are_kept_leaves_budgets_as_they_were(
    where: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = mechanisms(Day("UTC") & Forever.within(LEVEL))["whole day"]
    budgets = Budgets(m)
    by_rows(m, budgets, [*day("a", 0, 3), ("b", START_S)])
    rows = [("a", START_S + 60), *day("a", 1), *day("a", 2), *day("b", 1)]
    before, calls = contents(budgets), 0
    owner = budgets_module if where == "put_runs" else bisect
    real = getattr(owner, where)

    def interrupted(*given: Any) -> None:
        nonlocal calls
        real(*given)
        calls += 1
        if calls == after + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(owner, where, interrupted)
    if after == 3:  # there are three new windows, and three runs are put
        by_rows(m, budgets, rows)
        assert contents(budgets) != before
        return
    with pytest.raises(KeyboardInterrupt):
        by_rows(m, budgets, rows)
    assert contents(budgets) == before


@pytest.mark.parametrize("preset", ["independent", "whole day"])
@pytest.mark.parametrize("window", [Day("UTC"), Day("UTC") & Forever.within(LEVEL)])
def test_no_rows_are_no_reports(preset: str, window: Any) -> None:
    m = mechanisms(window)[preset]
    empty = np.empty((0, 2)), np.empty(0)
    assert len(hereish.sanitize(m, *empty, [0], run=m.run(0)).value) == 0
    budgets = Budgets(m)
    for known in (0, 1):
        assert by_rows(m, budgets, []) == []
        frame = pd.DataFrame({"time": pd.to_datetime([], utc=True), "lat": [], "lon": []})
        assert (
            len(sanitize_frame(frame.astype({"lat": float, "lon": float}), m, budgets=budgets)) == 0
        )
        assert len(budgets) == known
        by_rows(m, budgets, day("a", known))
