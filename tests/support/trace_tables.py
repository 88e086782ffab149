"""Small tables of traces, and what was released of them."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import hereish
from hereish.traces.summary import Summary

PRIVACY = hereish.Privacy(math.log(10), 100)
BUDGET = PRIVACY.eps_per_m
M = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("UTC"))
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


def table(path: Path, rows: Sequence[tuple[object, ...]], header: str = "user,time,lat,lon") -> str:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header.split(","))
        out.writerows(rows)
    return str(path)


def rows(
    user: str, points: int, start: datetime = NOON, step_s: float = 60.0
) -> list[tuple[object, ...]]:
    """Somebody who wanders off, so that guesses fail and the budget is used up."""
    return [
        (user, (start + timedelta(seconds=step_s * i)).isoformat(), 60.1 + 0.05 * (i % 500), 24.9)
        for i in range(points)
    ]


def released(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def spent(out: list[dict[str, str]]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for row in out:
        costs[row["user"]] = costs.get(row["user"], 0.0) + float(row["cost"])
    return costs


def accounted(summary: Summary) -> bool:
    left_out = sum(summary.bad.values()) + summary.thinned + summary.refused
    return summary.points == summary.released + left_out
