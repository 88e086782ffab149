"""Other ways to hide a place, attacked the same way: `python -m hereish.attack.comparison`.

Each is a function of places. The observer tries it out to learn its noise, then looks for the homes
of made-up people who report every half hour for four weeks.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable

import numpy as np

from hereish.attack.callables import PlaceMechanism, learn_noise
from hereish.attack.home import find_place
from hereish.attack.lattice import M_PER_DEG, RADIUS_M, Frame, distance_m
from hereish.attack.night_study import NIGHTS, made_up
from hereish.attack.observations import from_noise
from hereish.core.types import Floats

_DAY_S = 86400.0
EPS_PER_M = math.log(10.0) / 100.0 / 48.0  # ln 10 within 100 m per day, for a report per half hour


def planar_laplace(eps_per_m: float) -> PlaceMechanism:
    """Independent planar Laplace noise."""

    def release(places: Floats, rng: np.random.Generator) -> Floats:
        radius = rng.gamma(2.0, 1.0 / eps_per_m, len(places))
        angle = rng.uniform(0.0, 2.0 * math.pi, len(places))
        return _moved(places, radius * np.cos(angle), radius * np.sin(angle))

    return release


def geocentric_laplace(eps_per_m: float) -> PlaceMechanism:
    """Planar Laplace noise on the first two geocentric coordinates, as privkit 0.5 adds it.

    The third one, which at the equator is the latitude, stays as it is but for the return to the
    surface.
    """

    def release(places: Floats, rng: np.random.Generator) -> Floats:
        radius = rng.gamma(2.0, 1.0 / eps_per_m, len(places))
        angle = rng.uniform(0.0, 2.0 * math.pi, len(places))
        lat, lon = np.radians(places).T
        x = RADIUS_M * np.cos(lat) * np.cos(lon) + radius * np.cos(angle)
        y = RADIUS_M * np.cos(lat) * np.sin(lon) + radius * np.sin(angle)
        z = RADIUS_M * np.sin(lat)
        radians = np.stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)], axis=1)
        return np.asarray(np.degrees(radians))

    return release


def rounding(decimals: int) -> PlaceMechanism:
    """Latitude and longitude cut to so many decimals."""
    return lambda places, rng: np.round(places, decimals)


def cached(mechanism: PlaceMechanism, within_m: float) -> PlaceMechanism:
    """One release per cell of so many metres, repeated whenever the person is there again."""

    def release(places: Floats, rng: np.random.Generator) -> Floats:
        frame = Frame.around(places)
        cells = np.floor(frame.to_metres(places) / within_m).astype(np.int64)
        _, first, which = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        return mechanism(places[first], rng)[which.reshape(-1)]

    return release


def kept_for(mechanism: PlaceMechanism, reports: int) -> PlaceMechanism:
    """One release for so many reports in a row, wherever the person goes meanwhile.

    Location Guard does this: its noise is drawn again when the last one is older than its cache
    time, which is set for each of its levels and does not look at the place.
    """

    def release(places: Floats, rng: np.random.Generator) -> Floats:
        first = np.arange(len(places)) // reports * reports
        return mechanism(places[::reports], rng)[first // reports]

    return release


def _moved(places: Floats, east_m: Floats, north_m: Floats) -> Floats:
    lat = places[:, 0] + north_m / M_PER_DEG
    lon = places[:, 1] + east_m / (M_PER_DEG * np.cos(np.radians(places[:, 0])))
    return np.stack([lat, lon], axis=1)


def zone_released(
    places: Floats, home: Floats, radius_m: float, rng: np.random.Generator
) -> Floats:
    """The places outside of a disc of this radius, in which home is somewhere; NaN inside."""
    angle, inside = rng.uniform(0.0, 2.0 * math.pi), radius_m * math.sqrt(rng.uniform(0.0, 1.0))
    middle = _moved(
        home[None], np.array([inside * math.cos(angle)]), np.array([inside * math.sin(angle)])
    )
    hidden = distance_m(places, middle) <= radius_m
    return np.where(hidden[:, None], np.nan, places)


def _mechanisms() -> dict[str, tuple[PlaceMechanism, Callable[[PlaceMechanism], PlaceMechanism]]]:
    """Each noise, and how long or where one draw of it is kept."""

    def each(mechanism: PlaceMechanism) -> PlaceMechanism:
        return mechanism

    return {
        "rounded to 2 decimals (1 km)": (rounding(2), each),
        "independent planar Laplace": (planar_laplace(EPS_PER_M), each),
        "geocentric noise (privkit's)": (geocentric_laplace(EPS_PER_M), each),
        # Half as many draws a day, with twice as much for each.
        "kept for an hour (Location Guard's cache)": (
            planar_laplace(2.0 * EPS_PER_M),
            lambda mechanism: kept_for(mechanism, 2),
        ),
        "drawn once per cell of 500 m": (
            planar_laplace(EPS_PER_M * 48.0 / 10.0),
            lambda mechanism: cached(mechanism, 500.0),
        ),
    }


def compare(people: int, seed: int = 1, lat: float | None = None) -> list[dict[str, float | str]]:
    """A row per mechanism: homes found within 200 m, and the error of the service."""
    crowd = made_up(people, seed)
    shift = 0.0 if lat is None else lat - float(np.mean([home[0] for home in crowd.home]))
    rows: list[dict[str, float | str]] = []
    for name, (mechanism, keep) in _mechanisms().items():
        rng = np.random.default_rng(seed)
        errors: dict[int, list[float]] = {nights: [] for nights in NIGHTS}
        service: list[Floats] = []
        around = crowd.home[0] + np.array([shift, 0.0])
        law = learn_noise(mechanism, around, spread_m=8000.0, seed=seed)
        for at_s, points, home in zip(crowd.at_s, crowd.points, crowd.home, strict=True):
            own, real = _at_latitude(points, home, shift)
            released = np.asarray(keep(mechanism)(own, rng))
            service.append(distance_m(released, own))
            seen = from_noise(at_s, released, 1.0, law)
            for nights in NIGHTS:
                some = seen.take(seen.at_s < at_s[0] + nights * _DAY_S)
                place = find_place(some, crowd.time_zone)
                apart = math.inf if place is None else float(distance_m(place.best, real))
                errors[nights].append(apart)
        row: dict[str, float | str] = {"mechanism": name}
        row |= {
            f"{nights} nights": float((np.array(found) <= 200.0).mean())
            for nights, found in errors.items()
        }
        rows.append(row | {"service_mean_m": float(np.concatenate(service).mean())})
    rows.append(_zone_row(crowd.points, crowd.home, seed))
    return rows


def _at_latitude(points: Floats, home: Floats, shift: float) -> tuple[Floats, Floats]:
    """The same city at another latitude, as large as it was."""
    if not shift:
        return points, home
    frame = Frame(float(home[0]), float(home[1]))
    moved = Frame(float(home[0]) + shift, float(home[1]))
    return moved.to_degrees(frame.to_metres(points)), moved.to_degrees(frame.to_metres(home))


def _zone_row(points: list[Floats], homes: list[Floats], seed: int) -> dict[str, float | str]:
    """A zone of 500 m hides a home until its edge is known: where all ways end."""
    rng = np.random.default_rng(seed)
    row: dict[str, float | str] = {"mechanism": "a hidden zone of 500 m around home"}
    for nights in NIGHTS:
        found = []
        for places, home in zip(points, homes, strict=True):
            released = zone_released(places, home, 500.0, rng)[: nights * 48]
            found.append(_zone_attack(released, home) <= 200.0)
        row[f"{nights} nights"] = float(np.mean(found))
    return row | {"service_mean_m": 0.0}


def _zone_attack(released: Floats, home: Floats) -> float:
    """The middle of the last places before each silence and the first ones after it."""
    silent = np.isnan(released[:, 0])
    edges = np.flatnonzero(~silent[:-1] & silent[1:])
    after = np.flatnonzero(silent[:-1] & ~silent[1:]) + 1
    ends = released[np.concatenate([edges, after])]
    if len(ends) < 2:
        return math.inf
    frame = Frame.around(ends)
    metres = frame.to_metres(ends)
    near = metres[np.hypot(*(metres - np.median(metres, axis=0)).T) < 3000.0]
    middle = frame.to_degrees(np.median(near, axis=0)) if len(near) else ends[0]
    return float(distance_m(middle, home))


def table(rows: list[dict[str, float | str]]) -> str:
    """Markdown."""
    lines = [
        "| mechanism | home within 200 m after "
        + " / ".join(map(str, NIGHTS))
        + " nights | error |",
        "|---|---|---|",
    ]
    for row in rows:
        found = " / ".join(f"{float(row[f'{nights} nights']):.0%}" for nights in NIGHTS)
        lines.append(f"| {row['mechanism']} | {found} | {float(row['service_mean_m']):.0f} m |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m hereish.attack.comparison"
    )
    parser.add_argument("--people", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lat", type=float, help="the same city at this latitude, such as 0")
    given = parser.parse_args(arguments)
    sys.stdout.write(table(compare(given.people, given.seed, given.lat)) + "\n")


if __name__ == "__main__":
    main()
