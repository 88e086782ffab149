"""The ready mechanisms on each space, and days of people who go back to their places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple

import numpy as np

from hereish import (
    BudgetExhaustedError,
    Day,
    Every,
    Line,
    Manhattan,
    Plane,
    PredictiveMechanism,
    Prior,
    PriorRemap,
    Privacy,
    Session,
    Sphere,
    steady,
    whole_day,
)
from hereish.core.presets import FEW_DAYS, WALKER
from hereish.core.spaces import Space
from hereish.core.types import Floats, Ints

PRIVACY = Privacy(math.log(10.0), 100.0)
TOTAL = PRIVACY.eps_per_m
# Clocks change in America within the first hours, and in Europe three weeks later.
START_S = datetime(2024, 3, 9, 20, 0, tzinfo=UTC).timestamp()
HELSINKI = Day("Europe/Helsinki")
ST_JOHNS = Day("America/St_Johns")  # half an hour beside the others, and its clock changes
SPACES: dict[str, Space] = {
    "line": Line(0.25),
    "plane": Plane(),
    "blocks": Manhattan(),
    "sphere": Sphere(),
}
QUIET = (time(23, 0), time(6, 30))


def town() -> Prior:
    """A public prior around the places of `people` on the sphere."""
    weights = np.random.default_rng(3).pareto(1.2, (60, 60))
    return Prior.from_grid("town", weights, south=59.9, west=24.5, cell_deg=(0.01, 0.02))


def presets(space: Space, **rest: Any) -> dict[str, PredictiveMechanism]:
    """Each way to build them, by name."""
    accuracy_m = 2.5 * space.c_noise(0.9) / TOTAL
    day: dict[str, Any] = {"space": space, **rest}
    window: dict[str, Any] = {"window": ST_JOHNS}
    built = {
        "whole day": whole_day(PRIVACY, **window, **day),
        "few days": whole_day(PRIVACY, numbers=FEW_DAYS, **window, **day),
        "every hour, by the hour": whole_day(
            PRIVACY, every=timedelta(hours=1), window=Every(timedelta(hours=5)), **day
        ),
        "quiet hours": whole_day(PRIVACY, quiet=QUIET, **window, **day),
        "reports": whole_day(PRIVACY, reports=7, **window, **day),
        "reports without a window": whole_day(PRIVACY, reports=25, window="none", **day),
        "accuracy": whole_day(PRIVACY, accuracy_m=accuracy_m, **window, **day),
        "steady": steady(PRIVACY, accuracy_m, numbers=WALKER, **window, **day),
    }
    if type(space) is Sphere:
        built["remap"] = whole_day(PRIVACY, remap=PriorRemap(town()), **window, **day)
    return built


class Traces(NamedTuple):
    """Traces laid end to end, as `sanitize` takes them."""

    points: Floats
    at_s: Floats
    offsets: Ints

    def rows(self, trace: int) -> slice:
        return slice(int(self.offsets[trace]), int(self.offsets[trace + 1]))


GAPS_S = (0.0, 0.25, 60.0, 1800.0, 3600.0, 6 * 3600.0, 30 * 3600.0, 9 * 86400.0)


def people(space: Space, lengths: Sequence[int], seed: int = 1) -> Traces:
    """Traces of people with a few places each, now and then for weeks unheard of.

    On the sphere some live where coordinates break: at a pole, and on the antimeridian.
    """
    rng = np.random.default_rng(seed)
    points, at_s = [], []
    for i, length in enumerate(lengths):
        places = 60.0 * rng.normal(size=(4, len(space.coordinates))) / TOTAL
        if type(space) is Sphere:
            centre = [(60.17, 24.94), (89.99, 10.0), (-17.0, 179.999), (-90.0, 0.0)][i % 4]
            places = centre + places / 111_195.0
            places = np.clip(places, -90.0, 90.0) if i % 4 else places
            places[:, 1] = (places[:, 1] + 540.0) % 360.0 - 180.0
        moves = rng.random(length) < 0.3
        where = rng.integers(0, 4, length)[np.maximum.accumulate(np.arange(length) * moves)]
        points.append(places[where])
        at_s.append(START_S + np.cumsum(rng.choice(GAPS_S, length, p=[0.05] * 3 + [0.17] * 5)))
    offsets = np.cumsum([0, *lengths])
    dim = len(space.coordinates)
    return Traces(
        np.concatenate([np.empty((0, dim)), *points]), np.concatenate([[], *at_s]), offsets
    )


def uniforms(m: PredictiveMechanism, count: int, seed: int = 1) -> Floats:
    """A row of uniforms for each report, of the kind that draws give."""
    numbers = np.random.default_rng(seed).integers(0, 2**52, (count, m.uniforms))
    return np.asarray(np.ldexp(2 * numbers + 1, -53))


def live(session: Session, points: Floats, at_s: Floats) -> tuple[Floats, Floats, list[str]]:
    """Values, costs and kinds of one trace as a session reports it."""
    value, cost, kind = np.full(points.shape, np.nan), np.zeros(len(points)), []
    for i, (point, now) in enumerate(zip(points, at_s, strict=True)):
        try:
            report = session.report(tuple(point), datetime.fromtimestamp(now, UTC))
        except BudgetExhaustedError:
            kind.append("")
        else:
            value[i], cost[i] = report.value, report.cost
            kind.append(str(report.kind))
    return value, cost, kind
