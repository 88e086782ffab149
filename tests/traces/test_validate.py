"""Rows that cannot be used are found, named, and nothing else is lost."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hereish.errors import PointError
from hereish.traces.faults import FAULT_REASONS, Fault, UnreadableFileError
from hereish.traces.formats.base import Source
from hereish.traces.formats.registry import FORMATS
from hereish.traces.table import Ids, RowBatch
from hereish.traces.time_order import TimeOrderChecker
from hereish.traces.validate import Validator

YEAR_S = 365 * 86400
SOURCE = Source(Path("log.csv"), FORMATS["csv"], Path("log.csv"))


def batch(
    at_s: list[float],
    *,
    lat: list[float] | None = None,
    lon: list[float] | None = None,
    user: list[str] | None = None,
    trace: list[str] | None = None,
) -> RowBatch:
    n = len(at_s)
    return RowBatch(
        line=np.arange(2, n + 2),
        at_us=np.array([round(at * 1e6) for at in at_s], dtype=np.int64),
        lat=np.array(lat if lat is not None else [60.0] * n),
        lon=np.array(lon if lon is not None else [25.0] * n),
        fault=np.zeros(n, dtype=np.uint8),
        user=None if user is None else Ids.of(user),
        trace=None if trace is None else Ids.of(trace),
    )


def faults(*batches: RowBatch) -> list[Fault]:
    checker = TimeOrderChecker()
    return [Fault(int(code)) for p in batches for code in checker.faults(p)]


N = Fault.NONE


def test_every_fault_has_a_reason() -> None:
    assert set(FAULT_REASONS) == set(Fault) - {Fault.NONE}


@pytest.mark.parametrize(
    ("lat", "lon", "expected"),
    [
        (90.0, 180.0, N),
        (-90.0, -180.0, N),
        (90.0001, 200.0, Fault.LAT_RANGE),
        (400.17, 116.3, Fault.LAT_RANGE),
        (60.0, 180.0001, Fault.LON_RANGE),
        (116.3, 39.9, Fault.SWAPPED),
        (-122.4, 37.7, Fault.SWAPPED),
    ],
)
def test_places(lat: float, lon: float, expected: Fault) -> None:
    assert faults(batch([0.0], lat=[lat], lon=[lon])) == [expected]


def test_what_the_reader_found_stays_and_takes_no_part_in_the_order() -> None:
    one = batch([10.0, 0.0, 20.0])
    one.fault[1] = Fault.TIME
    assert faults(one) == [N, Fault.TIME, N]


def test_times_rise_in_each_trace_and_traces_may_interleave() -> None:
    one = batch([0, 100, 1, 101, 1, 90], user=["a", "b", "a", "b", "a", "b"])
    assert faults(one) == [N, N, N, N, Fault.TWICE, Fault.ORDER]
    same_user = batch([100, 0, 101, 1], user=["a"] * 4, trace=["x", "y", "x", "y"])
    assert faults(same_user) == [N] * 4


def test_times_that_no_clock_shows() -> None:
    assert faults(batch([-3e9, 1e11])) == [Fault.YEAR, Fault.YEAR]
    assert faults(batch([-2e9])) == [N]


def test_a_clock_that_is_wrong_once_costs_one_point_and_not_all_that_follow() -> None:
    assert faults(batch([0, 10, 5000, 20, 30, 40])) == [N, N, Fault.ORDER, N, N, N]
    assert faults(batch([0, 10, 3, 20, 30])) == [N, N, Fault.ORDER, N, N]


def test_a_clock_that_jumps_by_years_costs_the_smaller_side() -> None:
    cold = [0.0, 60.0]
    warm = [9 * YEAR_S + 60.0 * i for i in range(5)]
    assert faults(batch(cold + warm, trace=["t"] * 7)) == [Fault.JUMP] * 2 + [N] * 5
    back = batch([*warm[:3], 0.0, *warm[3:]], trace=["t"] * 6)
    assert faults(back) == [N] * 3 + [Fault.JUMP] + [N] * 2
    assert faults(batch([0.0, YEAR_S - 1.0], trace=["t"] * 2)) == [N, N]


def test_what_is_of_no_trace_may_have_years_in_between() -> None:
    times = [0.0, 60.0, *(9 * YEAR_S + 60.0 * i for i in range(5))]
    assert faults(batch(times)) == [N] * 7
    assert faults(batch(times, user=["a"] * 7, trace=[""] * 7)) == [N] * 7


def test_the_next_piece_of_a_file_goes_on_where_the_last_one_ended() -> None:
    first = batch([0, 10, 20], user=["a", "a", "a"], trace=["t"] * 3)
    users = ["a", "a", "a", "a", "b"]
    second = batch([20, 15, 30, 25 + 3 * YEAR_S, 5], user=users, trace=["t"] * 5)
    expected = [N] * 3 + [Fault.TWICE, Fault.ORDER, N, Fault.JUMP, N]
    assert faults(first, second) == expected


def test_a_piece_of_dropped_rows_leaves_the_trace_where_it_stood() -> None:
    assert faults(batch([100]), batch([50]), batch([75])) == [N, Fault.ORDER, Fault.ORDER]


def test_as_many_points_as_can_be_are_kept() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        times = rng.integers(0, 12, 9)
        found = faults(batch([float(t) for t in times]))
        kept = [int(t) for t, fault in zip(times, found, strict=True) if fault == N]
        assert kept == sorted(set(kept))
        assert len(kept) == _longest(times.tolist())


def _longest(times: list[int]) -> int:
    """By trying all selections."""
    best = 0
    for mask in range(1 << len(times)):
        chosen = [t for i, t in enumerate(times) if mask >> i & 1]
        if len(chosen) > best and all(a < b for a, b in pairwise(chosen)):
            best = len(chosen)
    return best


def test_an_error_names_file_and_line_and_not_the_place() -> None:
    one = batch([0.0, 1.0], lat=[60.123456, 400.654321])
    fault = TimeOrderChecker().faults(one)
    with pytest.raises(PointError, match=r"log\.csv, line 3: its latitude is outside") as wrong:
        Validator(drop_bad=False).without_faults(SOURCE, one, fault)
    for digits in ("400", "654321", "60.1"):
        assert digits not in str(wrong.value)
    assert "--drop-bad" in str(wrong.value)


def test_dropping_counts_each_reason() -> None:
    one = batch([0.0, 1.0, 1.0, 1.0, 2.0], lat=[60.0, 60.0, 60.0, 60.0, 400.0])
    validator = Validator(drop_bad=True)
    left = validator.without_faults(SOURCE, one, TimeOrderChecker().faults(one))
    assert left.at_us.tolist() == [0, 1_000_000]
    assert left.line.tolist() == [2, 3]
    assert validator.dropped == {FAULT_REASONS[Fault.TWICE]: 2, FAULT_REASONS[Fault.LAT_RANGE]: 1}


def test_a_broken_file_is_an_error_or_a_note() -> None:
    why = UnreadableFileError("it ends early", 7, expected="more", remedy="copy it again")
    with pytest.raises(PointError, match=r"log\.csv, line 7: it ends early"):
        Validator(drop_bad=False).file_error(SOURCE, why)
    validator = Validator(drop_bad=True)
    validator.file_error(SOURCE, why)
    assert validator.unreadable == ["log.csv, line 7: it ends early"]
