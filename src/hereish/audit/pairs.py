"""Pairs of traces that an audit compares: at several distances, latitudes and ways to differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from hereish.audit.geometry import LONGEST_M, Globe, destination, geodesic_m
from hereish.audit.pair_audit import Pair
from hereish.core.privacy import Privacy
from hereish.core.types import Floats
from hereish.errors import ParameterError

LATITUDES = (0.0, 60.17)
STEPS = 4
_LONGITUDE = 24.94
_DECIMALS = 7
_NORTH, _EAST = 0.0, 90.0
_DIRECTIONS = ((_NORTH, "north"), (_EAST, "east"))
# In radii: far more than one would tell by the noise, and the least that a phone can tell.
_FAR, _NEAR = 3.0, 0.03
# How far somebody goes between two reports, and how much further in the other trace, in units of
# 1 / epsilon of a report that gets an equal share of the budget.
_TRIPS, _FURTHER = (3.0, 8.0), 2.3


def default_pairs(
    privacy: Privacy,
    steps: int = STEPS,
    latitudes: Sequence[float] | None = None,
    distances_m: Sequence[float] | None = None,
    trips_m: Sequence[tuple[float, float]] | None = None,
) -> tuple[Pair, ...]:
    """Traces of `steps` reports each.

    At each latitude one that stays is moved to the north and to the east by the radius (or each of
    `distances_m`). Others differ by much less or more, begin at the same place and part later, have
    a pole or the antimeridian between them, or are a place by two names. Of `trips_m`, each
    is how far somebody goes after the first report, and how much further in the other trace: that
    is where tests of a guess tell something.
    """
    if steps < 2:
        raise ParameterError(f"traces must have at least 2 reports, found {steps}")
    if trips_m is None:
        scale = steps / privacy.eps_per_m
        trips_m = [(trip * scale, _FURTHER * scale) for trip in _TRIPS]
    apart_m = list(distances_m or [privacy.radius_m])
    if max(apart_m) > LONGEST_M:
        raise ParameterError(
            f"distances must be at most {LONGEST_M / 1000:g} km, found {max(apart_m) / 1000:g} km"
        )
    return tuple(_pairs(privacy.radius_m, steps, list(latitudes or LATITUDES), apart_m, trips_m))


def on_globe(x: Floats, other: Floats, name: str = "") -> Pair:
    """Two traces of latitudes and longitudes; the claim speaks of WGS84 geodesic metres.

    They are rounded to the centimetre, as phones do: the last bits of doubles are not the question.
    """
    x, other = (np.round(trace, _DECIMALS) for trace in (x, other))
    return Pair(x, other, geodesic_m(x, other), Globe(), name)


def moved(trace: Floats, metres: float, bearing_deg: float, name: str = "") -> Pair:
    """A trace, and the same with every place moved by so much."""
    other = [destination((float(lat), float(lon)), metres, bearing_deg) for lat, lon in trace]
    return on_globe(trace, np.array(other), name)


def _pairs(
    radius_m: float,
    steps: int,
    latitudes: list[float],
    apart_m: list[float],
    trips_m: Sequence[tuple[float, float]],
) -> Iterator[Pair]:
    for lat in latitudes:
        stays = np.tile((lat, _LONGITUDE), (steps, 1))
        for metres in apart_m:
            for bearing, towards in _DIRECTIONS:
                name = f"{_metres(metres)} {towards} at {_latitude(lat)}"
                yield moved(stays, metres, bearing, name)
    lat = latitudes[-1]
    home = (lat, _LONGITUDE)
    stays = np.tile(home, (steps, 1))
    for metres, bearing, towards in (
        (_NEAR * min(apart_m), _NORTH, "north"),
        (_FAR * max(apart_m), _EAST, "east"),
    ):
        if metres <= LONGEST_M:
            yield moved(stays, metres, bearing, f"{_metres(metres)} {towards} at {_latitude(lat)}")
    half = steps // 2
    away = np.tile(destination(home, apart_m[0], _NORTH), (steps - half, 1))
    yield on_globe(
        stays, np.concatenate([stays[:half], away]), f"leaves for {_metres(apart_m[0])}, or stays"
    )
    for trip_m, further_m in trips_m:
        there, beyond = (
            np.concatenate([stays[:1], np.tile(destination(home, metres, _NORTH), (steps - 1, 1))])
            for metres in (trip_m, trip_m + further_m)
        )
        name = f"goes {_metres(trip_m)}, or {_metres(further_m)} further"
        yield on_globe(there, beyond, name)
    half_deg = math.degrees(0.5 * radius_m / 6_371_009.0)
    for name, x, other in (
        ("across the pole", (90.0 - half_deg, 0.0), (90.0 - half_deg, 180.0)),
        ("across the antimeridian", (-17.0, 180.0 - half_deg), (-17.0, -180.0 + half_deg)),
        ("a pole by two names", (90.0, 0.0), (90.0, 77.0)),
    ):
        yield on_globe(np.tile(x, (steps, 1)), np.tile(other, (steps, 1)), name)


def _metres(metres: float) -> str:
    if metres < 10.0:
        return f"{metres:.2g} m"
    return f"{metres:.0f} m" if metres < 1000.0 else f"{metres / 1000:.3g} km"


def _latitude(lat: float) -> str:
    return "the equator" if lat == 0.0 else f"{abs(lat):g}° {'N' if lat > 0 else 'S'}"
