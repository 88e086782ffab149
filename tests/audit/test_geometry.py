"""Distances of the pairs are WGS84 geodesics, by another program."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyproj import Geod

from hereish import ParameterError, Privacy
from hereish.audit.geometry import destination, geodesic_m
from hereish.audit.pairs import default_pairs, moved

GEOD = Geod(ellps="WGS84")
PRIVACY = Privacy(level=math.log(10), radius_m=100)


@pytest.mark.parametrize("metres", [1.0, 300.0, 9_000.0, 90_000.0])
def test_distances_are_those_of_pyproj_and_never_shorter(metres: float) -> None:
    rng = np.random.default_rng(3)
    lat, lon = rng.uniform(-90, 90, 200), rng.uniform(-180, 180, 200)
    lat[:3], lon[0] = (90.0, -90.0, 0.0), 180.0
    a = np.column_stack([lat, lon])
    b = np.array([destination((x, y), metres, 40.0) for x, y in a.tolist()])
    exact = np.asarray(GEOD.inv(a[:, 1], a[:, 0], b[:, 1], b[:, 0])[2])
    found = geodesic_m(a, b)
    slack = 1e-8 + 2e-7 * max(1.0, (metres / 9000.0) ** 2) * metres
    assert np.all(found >= exact - 1e-8)
    assert np.all(found <= exact + slack)


def test_pairs_are_as_far_apart_as_they_say() -> None:
    pairs = default_pairs(PRIVACY, 3)
    assert len({pair.name for pair in pairs}) == len(pairs)
    for pair in pairs:
        assert pair.x.shape == pair.other.shape == (3, 2)
        exact = GEOD.inv(pair.x[:, 1], pair.x[:, 0], pair.other[:, 1], pair.other[:, 0])[2]
        assert np.allclose(pair.apart, exact, rtol=1e-6, atol=1e-8)
    by_name = {pair.name: pair for pair in pairs}
    assert by_name["a pole by two names"].apart_m < 1e-6
    assert by_name["across the pole"].apart_m == pytest.approx(100.0, rel=0.01)
    assert by_name["leaves for 100 m, or stays"].apart[0] == 0.0


def test_a_trace_of_ones_own_is_moved_as_a_whole() -> None:
    trace = np.array([[60.17, 24.94], [60.2, 24.9], [59.9, 25.1]])
    pair = moved(trace, 250.0, 135.0, "mine")
    assert pair.name == "mine"
    assert np.allclose(pair.apart, 250.0, rtol=0.006)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"steps": 1}, "at least 2"), ({"distances_m": [2e5]}, "at most 100 km")],
)
def test_what_cannot_be_compared_is_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        default_pairs(PRIVACY, **changed)  # type: ignore[arg-type]  # as a caller may
