"""Budgets of which less than all was granted: no lane spends more, in batches, frames and files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hereish
from hereish.core.types import Floats
from hereish.errors import HereishError, ParameterError, PointError
from hereish.traces import arrow
from hereish.traces.arrow import ArrowColumns
from hereish.traces.budgets import Budgets, EachTrace
from hereish.traces.files import sanitize_files
from hereish.traces.frames import sanitize_frame
from hereish.traces.job_budget import UserWindow, WindowCost
from tests.traces.test_arrow import KEY, MECHANISMS, PRIVACY, people, released

COLUMNS = ArrowColumns("user", "time", "lat", "lon", granted="granted")
SHARES = (1.0, 0.5, 0.03, 0.0)


def share_of(user: str, window: int) -> float:
    """What somebody got of a window, as a share of a budget."""
    return SHARES[(int(user.split()[1]) + window) % len(SHARES)]


def granted(keys: Sequence[tuple[str, int]], at_s: Floats) -> Floats:
    assert len(keys) == len(at_s)
    return np.array([share_of(*key) * PRIVACY.eps_per_m for key in keys])


def window_numbers(table: pa.Table, m: Any) -> list[int]:
    at_s = table["time"].cast(pa.int64()).to_numpy() * 1e-6
    numbers = m.window.index(at_s)
    return [0] * len(at_s) if numbers is None else numbers.tolist()


def with_grants(table: pa.Table, m: Any) -> pa.Table:
    windows: dict[str, set[int]] = {}
    users = table["user"].to_pylist()
    for user, window in zip(users, window_numbers(table, m), strict=True):
        windows.setdefault(user, set()).add(window)
    lists = {
        user: [
            {"window": window, "eps": share_of(user, window) * PRIVACY.eps_per_m}
            for window in numbers
            if share_of(user, window) > 0.0 or window % 2  # what is not listed is nothing, too
        ]
        for user, numbers in windows.items()
    }
    kind = pa.list_(pa.struct([("window", pa.int64()), ("eps", pa.float64())]))
    return table.append_column("granted", pa.array([lists[user] for user in users], kind))


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rows", [64, 500, 360_000])
def test_no_more_is_spent_than_was_granted(
    monkeypatch: pytest.MonkeyPatch, name: str, rows: int
) -> None:
    monkeypatch.setattr(arrow, "CHUNK_ROWS", rows)
    m, table = MECHANISMS[name], people(12, 120)
    out = released(with_grants(table, m), m, COLUMNS, size=100)
    spent: dict[tuple[str, int], float] = {}
    keys = zip(out["user"].to_pylist(), window_numbers(out, m), strict=True)
    for key, cost in zip(keys, out["cost"].to_pylist(), strict=True):
        spent[key] = spent.get(key, 0.0) + cost
    for key, cost in spent.items():
        assert cost <= share_of(*key) * PRIVACY.eps_per_m
    assert max(spent.values()) > 0.5 * PRIVACY.eps_per_m
    # A frame whose budgets are granted in the same way gives the same bits.
    budgets = Budgets(m, granted)
    frame = sanitize_frame(table, m, user="user", draws=KEY, budgets=budgets)
    assert out.equals(frame.replace_schema_metadata(None).cast(out.schema))
    costs = {(user, window): cost for user, window, cost in budgets.costs() if cost}
    assert costs == {key: cost for key, cost in spent.items() if cost}


def test_a_whole_grant_is_a_whole_budget() -> None:
    m, table = MECHANISMS["whole day"], people(5, 60)
    whole = Budgets(m, lambda keys, _: np.full(len(keys), PRIVACY.eps_per_m))
    frame = sanitize_frame(table, m, user="user", draws=KEY, budgets=whole)
    assert frame.equals(sanitize_frame(table, m, user="user", draws=KEY))


def test_grants_need_a_window_of_time_and_a_column_of_lists() -> None:
    m = MECHANISMS["whole day"]
    table = people(2, 5).append_column("granted", pa.array([1.0] * 10))
    with pytest.raises(ParameterError, match="lists of structs"):
        released(table, m, COLUMNS)
    per_trace = hereish.fixed_utility(PRIVACY, 3000, window=EachTrace())
    columns = ArrowColumns("user", "time", "lat", "lon", "trace", granted="granted")
    with pytest.raises(ParameterError, match="none per trace"):
        released(with_grants(people(2, 5), m), per_trace, columns)


def test_a_window_that_was_granted_twice_is_refused() -> None:
    # As from the grants of two jobs: which of them counts would depend on the order.
    m = MECHANISMS["whole day"]
    table = with_grants(people(2, 5), m)
    twice = [grants + grants[:1] for grants in table["granted"].to_pylist()]
    doubled = table.drop_columns("granted").append_column(
        "granted", pa.array(twice, table["granted"].type)
    )
    with pytest.raises(PointError, match="granted twice"):
        released(doubled, m, COLUMNS)


class Job:
    """A job of its own, which may refuse to pay."""

    def __init__(self, share: float, refuses: bool = False) -> None:
        self.share, self.refuses = share, refuses
        self.asked: list[UserWindow] = []
        self.paid: list[WindowCost] | None = None

    def reserve(self, windows: Sequence[UserWindow]) -> Floats:
        self.asked += windows
        return np.full(len(windows), self.share * PRIVACY.eps_per_m)

    def settle(self, costs: Iterable[WindowCost], digest: bytes | None = None) -> None:
        if self.refuses:
            raise HereishError("not paid")
        self.paid = list(costs)


def write_points(folder: Path) -> Path:
    rows = ["user,time,lat,lon"]
    for user in ("ada", "bob"):
        rows += [f"{user},2026-05-0{1 + i // 24}T{i % 24:02}:00:00Z,60.1,24.9" for i in range(48)]
    path = folder / "points.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_files_are_paid_for_before_they_appear(tmp_path: Path) -> None:
    m = hereish.whole_day(PRIVACY)
    source, out = write_points(tmp_path), tmp_path / "out.csv"
    refusing = Job(0.5, refuses=True)
    with pytest.raises(HereishError, match="not paid"):
        sanitize_files([source], out, m, job=refusing)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["points.csv"]
    job = Job(0.5)
    tally = sanitize_files([source], out, m, job=job)
    assert tally.released == 96
    assert {(one.user, one.window) for one in job.asked} == {
        (cost.user, cost.window) for cost in job.paid or []
    }
    assert len(job.asked) == 4
    assert all(0.0 < cost.cost <= 0.5 * PRIVACY.eps_per_m for cost in job.paid or [])
    nothing = sanitize_files([source], tmp_path / "none.csv", m, job=Job(0.0))
    assert (nothing.released, nothing.refused) == (0, 96)
    assert (tmp_path / "none.csv").read_text() == "user,time,lat,lon,kind,cost\n"
    with pytest.raises(ParameterError, match="standard output"):
        sanitize_files([source], "-", m, job=Job(1.0))
