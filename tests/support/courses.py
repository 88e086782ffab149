"""Every prediction on every space, and traces of those who travel: straight on, with turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np

from hereish import (
    Day,
    Ensemble,
    Every,
    Filter,
    Line,
    Linear,
    Manhattan,
    Mobility,
    MobilityModel,
    Month,
    NoiseFirst,
    Parrot,
    PlaceMemory,
    Plan,
    Plane,
    Prediction,
    PredictiveMechanism,
    Privacy,
    Run,
    Sphere,
    Vector,
    fixed_utility,
)
from hereish.core.spaces import Space
from hereish.core.types import Floats
from hereish.domains import DailyProfile, Follow, dashboard, smart_meter, stream
from hereish.roads import RoadGraph, RoadNetwork, RoadPrediction, graph_from_lines
from tests.support.whole_days import Traces

SPACES: dict[str, Space] = {"line": Line(0.25), "plane": Plane(), "sphere": Sphere()}


def group_model(space: Space) -> MobilityModel:
    """Three places near where travellers set out, one of them never left."""
    dim, rng = len(space.coordinates), np.random.default_rng(4)
    off = np.array([[0.0, 0.0], [900.0, 300.0], [-400.0, 1500.0]])
    places = _on_globe(off, (60.17, 24.94)) if type(space) is Sphere else off[:, :dim]
    moves = np.array([[0.0, 3.0, 1.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    return MobilityModel("three", places, np.full(3, 1e-4), rng.uniform(0, 9, (3, 16)), moves)


PREDICTIONS: dict[str, Callable[[Space], Prediction]] = {
    "parrot": lambda space: Parrot(),
    "places": PlaceMemory,
    "mobility": lambda space: Mobility(space, silence_s=600.0, sure=1.0),
    "mobility of a group": lambda space: Mobility(
        space, places=4, silence_s=600.0, sure=1.0, model=group_model(space)
    ),
    "linear": Linear,
    "filter": Filter,
    "ensemble": Ensemble,
    "paper's ensemble": lambda space: Ensemble(
        space, (PlaceMemory(space), Linear(space)), rule="asked"
    ),
}
MOBILITY = ("mobility", "mobility of a group")
PRIVACY = Privacy(20.0, 10.0)  # noise of tens of metres, many times
WINDOW = Every(timedelta(minutes=7))
START_S = 1.75e9
_PER_DEGREE_M = 111_195.0
CENTRES = [(60.17, 24.94), (89.99, 10.0), (-17.0, 179.999)]


def small_tests(run: Run, at_s: Floats, /) -> Plan:
    """For noise first; nothing is asked of every eleventh report."""
    eps_noise = PRIVACY.eps_per_m / 40.0
    threshold = np.where(run.reports % 11 == 10, np.inf, 2.0 / eps_noise)
    return Plan(0.1 * eps_noise, eps_noise, threshold)


def mechanisms(prediction: Prediction, space: Space) -> dict[str, PredictiveMechanism]:
    """The prediction with each decision."""
    given: dict[str, Any] = {"prediction": prediction, "space": space, "window": WINDOW}
    made = {
        "laplace test": fixed_utility(
            PRIVACY, 25.0 * space.c_noise(0.9), prediction_rate=0.9, **given
        )
    }
    if not isinstance(space, RoadNetwork):  # on which noise first is refused
        made["noise first"] = PredictiveMechanism(
            PRIVACY, small_tests, decision=NoiseFirst(), on_exhausted="predict", **given
        )
    return made


@cache
def streets() -> RoadGraph:
    """A grid around the first centre of `travellers`, 300 m from street to street."""
    lat, lon = CENTRES[0]
    ways_m = 300.0 * np.arange(-20, 21) / _PER_DEGREE_M
    north, east = np.meshgrid(lat + ways_m, lon + ways_m / np.cos(np.radians(lat)), indexing="ij")
    corners = np.stack([north, east], axis=-1)
    return graph_from_lines([*corners, *corners.swapaxes(0, 1)], name="grid", spacing_m=400.0)


def cases() -> dict[str, PredictiveMechanism]:
    """Each prediction, on each space that it works on, with each decision."""
    pairs = [(n, place, make(s)) for n, make in PREDICTIONS.items() for place, s in SPACES.items()]
    roads = RoadPrediction(streets(), still_m=60.0)
    pointer = Mobility(SPACES["sphere"], model=group_model(SPACES["sphere"])).towards
    manhattan, meter = Manhattan(), Vector(1, low=-2e5, high=2e5)
    vectors = {f"vector {norm}": Vector(2, norm) for norm in ("l1", "l2", "linf")}
    more: dict[str, Space] = {
        "manhattan": manhattan,
        **vectors,
        "vector of one": meter,
        "road network": RoadNetwork(streets()),
    }
    pairs += [("parrot", place, Parrot()) for place in more]
    pairs += [
        *((n, "manhattan", PREDICTIONS[n](manhattan)) for n in ("places", *MOBILITY)),
        *(("follow", place, Follow(space)) for place, space in vectors.items()),
        ("daily profile", "vector of one", DailyProfile(meter, every_s=600.0)),
        ("roads", "sphere", roads),
        ("roads", "road network", roads),
        ("roads to a mobility model", "sphere", replace(roads, towards=pointer)),
    ]
    return {
        f"{name}, {place}, {how}": m
        for name, place, prediction in pairs
        for how, m in mechanisms(prediction, (SPACES | more)[place]).items()
    } | domains()


def domains() -> dict[str, PredictiveMechanism]:
    """Each domain as it comes, where one number is the way of a traveller in metres."""
    privacy, window = Privacy(20.0, 500.0), Every(timedelta(minutes=30))
    metres = Vector(2, "linf", low=-2e5, high=2e5)
    return {
        "smart meter": smart_meter(
            privacy, every=timedelta(minutes=1), window=window, highest_wh=2e5, usual_wh=100.0
        ),
        "smart meter, day within month": smart_meter(
            Privacy(400.0, 500.0),
            every=timedelta(minutes=15),
            window=Day("Europe/Helsinki") & Month("Europe/Helsinki").within(600.0),
            highest_wh=2e5,
        ),
        "dashboard": dashboard(0.5, 2, 90, window=window, on_exhausted="predict"),
        "stream": stream(privacy, metres, 90, window=window, on_exhausted="predict"),
    }


def travellers(space: Space, lengths: list[int], seed: int = 1) -> Traces:
    """Reports every few seconds at about 30 m/s, a turn now and then, and waits.

    On the sphere some cross a pole, or the antimeridian.
    """
    rng = np.random.default_rng(seed)
    points, at_s = [], []
    for i, length in enumerate(lengths):
        steps_s = rng.choice([5.0, 10.0, 0.0, 900.0], length, p=[0.6, 0.36, 0.02, 0.02])
        heading = np.pi * rng.random() + np.cumsum(
            np.where(rng.random(length) < 0.05, rng.normal(0.0, 2.0, length), 0.0)
        )
        speed = 30.0 * (rng.random(length) < 0.9)
        moves = (speed * steps_s)[:, None] * np.column_stack([np.cos(heading), np.sin(heading)])
        place = np.cumsum(moves, axis=0)
        if type(space) in (Sphere, RoadNetwork):
            place = _on_globe(place, CENTRES[i % 3])
        points.append(place[:, : len(space.coordinates)])
        at_s.append(START_S + np.cumsum(steps_s))
    dim = len(space.coordinates)
    offsets = np.cumsum([0, *lengths])
    return Traces(
        np.concatenate([np.empty((0, dim)), *points]), np.concatenate([[], *at_s]), offsets
    )


def _on_globe(metres: Floats, centre: tuple[float, float]) -> Floats:
    """Metres north and east of a place, straight over a pole if need be."""
    lat = centre[0] + metres[:, 0] / _PER_DEGREE_M
    narrow = max(np.cos(np.radians(centre[0])), 0.01)
    lon = centre[1] + metres[:, 1] / _PER_DEGREE_M / narrow
    over = np.abs(lat) > 90.0
    lat = np.where(over, np.sign(lat) * 180.0 - lat, lat)
    lon = np.where(over, lon + 180.0, lon)
    return np.column_stack([lat, (lon + 540.0) % 360.0 - 180.0])
