"""Every prediction on every space, and traces of those who travel: straight on, with turns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from hereish import (
    Ensemble,
    Every,
    Filter,
    Line,
    Linear,
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
    fixed_utility,
)
from hereish.core.spaces import Space
from hereish.core.types import Floats
from tests.support.whole_days import Traces

SPACES: dict[str, Space] = {"line": Line(0.25), "plane": Plane(), "sphere": Sphere()}
PREDICTIONS: dict[str, Callable[[Space], Prediction]] = {
    "parrot": lambda space: Parrot(),
    "places": PlaceMemory,
    "linear": Linear,
    "filter": Filter,
    "ensemble": Ensemble,
    "paper's ensemble": lambda space: Ensemble(
        space, (PlaceMemory(space), Linear(space)), rule="asked"
    ),
}
PRIVACY = Privacy(20.0, 10.0)  # noise of tens of metres, many times
WINDOW = Every(timedelta(minutes=7))
START_S = 1.75e9
_PER_DEGREE_M = 111_195.0


def small_tests(run: Run, at_s: Floats, /) -> Plan:
    """For noise first; nothing is asked of every eleventh report."""
    eps_noise = PRIVACY.eps_per_m / 40.0
    threshold = np.where(run.reports % 11 == 10, np.inf, 2.0 / eps_noise)
    return Plan(0.1 * eps_noise, eps_noise, threshold)


def mechanisms(prediction: Prediction, space: Space) -> dict[str, PredictiveMechanism]:
    """The prediction with each decision."""
    given: dict[str, Any] = {"prediction": prediction, "space": space, "window": WINDOW}
    return {
        "laplace test": fixed_utility(
            PRIVACY, 25.0 * space.c_noise(0.9), prediction_rate=0.9, **given
        ),
        "noise first": PredictiveMechanism(
            PRIVACY, small_tests, decision=NoiseFirst(), on_exhausted="predict", **given
        ),
    }


def cases() -> dict[str, PredictiveMechanism]:
    """Each prediction, on each space, with each decision."""
    return {
        f"{name}, {place}, {how}": m
        for name, make in PREDICTIONS.items()
        for place, space in SPACES.items()
        for how, m in mechanisms(make(space), space).items()
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
        if type(space) is Sphere:
            place = _on_globe(place, [(60.17, 24.94), (89.99, 10.0), (-17.0, 179.999)][i % 3])
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
