"""The observer's posterior: right, as good as a Kalman smoother, never more than evidence."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from filterpy.kalman import KalmanFilter

import hereish
from hereish.attack.lattice import Frame, distance_m
from hereish.attack.movement import Movement, fit_movement
from hereish.attack.observations import Observations, from_noise
from hereish.attack.replay import Releases, replay
from hereish.attack.smoothing import smooth
from hereish.core.batch import sanitize
from hereish.core.types import Floats, Kind
from tests.support.observed import PRIVACY, WINDOW, observed, people

FRAME = Frame(48.0, 11.0)
MOVEMENT = Movement(3 * 3600.0, (500.0, 3000.0), (0.5, 0.5), 3600.0, returns=0.0)
AREA_M = 15_000.0
TIMES_S: Floats = 1.7e9 + np.arange(8.0) * 1800.0
AREA = (FRAME.to_degrees(np.array([[-AREA_M, -AREA_M], [AREA_M, AREA_M]])), 0.0)
PEOPLE = 500


@pytest.fixture(scope="module")
def paths() -> Floats:
    """(people, times, 2) degrees: anywhere in the area at first, then as the model says."""
    rng = np.random.default_rng(4)
    start_m = rng.uniform(-0.6 * AREA_M, 0.6 * AREA_M, (PEOPLE, 2))
    return FRAME.to_degrees(MOVEMENT.draw(rng, start_m, TIMES_S))


MECHANISMS = {
    "whole-day": hereish.whole_day(PRIVACY),
    "paper": hereish.fixed_rate(PRIVACY, 12),
    "independent": hereish.independent(PRIVACY, reports=20),
}


def seen_of(m: hereish.PredictiveMechanism, paths: Floats) -> list[Observations]:
    offsets = np.arange(len(paths) + 1) * len(TIMES_S)
    at_s = np.tile(TIMES_S, len(paths))
    out = sanitize(m, paths.reshape(-1, 2), at_s, offsets, seed=11)
    assert out.released.all()
    return replay(
        m,
        [
            Releases(
                TIMES_S, out.value[a:b], [Kind(k) for k in out.kind[a:b].tolist()], out.cost[a:b]
            )
            for a, b in pairwise(offsets.tolist())
        ],
        windows_apart=False,
    )


def levels(seen: list[Observations], paths: Floats) -> Floats:
    """One level per person, at a time of their own, so that they are independent."""
    rng = np.random.default_rng(6)
    drawn = []
    for number, (own, path) in enumerate(zip(seen, paths, strict=True)):
        time = number % len(TIMES_S)
        drawn.append(smooth(own, MOVEMENT, area=AREA).level_of(time, path[time], rng.random()))
    return np.array(drawn)


def is_uniform(drawn: Floats) -> bool:
    """Kolmogorov and Smirnov at alpha = 1e-6: n = 500 detects shares that are off by 12 points.

    And the share below 0.9, by the same alpha: off by 6.6 points.
    """
    count = len(drawn)
    ranks = np.arange(1, count + 1) / count
    ordered = np.sort(drawn)
    apart = max(np.abs(ordered - ranks).max(), np.abs(ordered - ranks + 1 / count).max())
    held = abs(float((drawn < 0.9).mean()) - 0.9)
    allowed = 4.9 * math.sqrt(0.9 * 0.1 / count)
    return bool(apart <= math.sqrt(math.log(2e6) / (2 * count)) and held <= allowed)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_region_of_each_share_holds_the_truth_as_often(name: str, paths: Floats) -> None:
    seen = seen_of(MECHANISMS[name], paths)
    assert is_uniform(levels(seen, paths))


def test_a_wrong_likelihood_is_noticed(paths: Floats) -> None:
    seen = seen_of(MECHANISMS["independent"], paths)
    wrong = [dataclasses.replace(own, eps_noise=2.5 * own.eps_noise) for own in seen]
    assert not is_uniform(levels(wrong, paths))


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise of this scale."""

    scale_m: float

    def log_density(self, east_m: Floats, north_m: Floats) -> Floats:
        return -(east_m**2 + north_m**2) / (2.0 * self.scale_m**2)


def test_it_is_as_good_as_a_kalman_smoother_where_both_apply() -> None:
    """A Gaussian walk with Gaussian noise, of which filterpy's smoother knows the exact answer."""
    walk_m, noise_m, count = 400.0, 900.0, 40
    rng = np.random.default_rng(9)
    at_s: Floats = 1.7e9 + np.arange(float(count)) * 3600.0
    truth_m = np.cumsum(rng.standard_normal((count, 2)) * walk_m, axis=0)
    released_m = truth_m + rng.standard_normal((count, 2)) * noise_m
    kalman = KalmanFilter(dim_x=2, dim_z=2)
    kalman.F, kalman.H = np.eye(2), np.eye(2)
    kalman.x, kalman.P = np.zeros(2), np.eye(2) * 1e9
    kalman.Q, kalman.R = np.eye(2) * walk_m**2, np.eye(2) * noise_m**2
    filtered, covariances, _, _ = kalman.batch_filter(released_m)
    exact_m, exact_p, _, _ = kalman.rts_smoother(filtered, covariances)
    seen = from_noise(at_s, FRAME.to_degrees(released_m), 1.0, Gaussian(noise_m))
    movement = Movement(1e-3, (walk_m,), (1.0,), 3600.0, returns=0.0)
    found = smooth(seen, movement)
    found_m = FRAME.to_metres(found.mean())
    assert np.hypot(*(found_m - exact_m).T).max() < 40.0  # of a spread of 500 m
    spread_m = np.sqrt(exact_p[:, 0, 0] + exact_p[:, 1, 1])
    assert found.spread_m() == pytest.approx(spread_m, rel=0.05)
    errors = [np.sqrt(((one - truth_m) ** 2).sum(axis=1).mean()) for one in (found_m, exact_m)]
    assert errors[0] <= 1.02 * errors[1]


def test_a_clean_trace_is_followed_to_the_metre() -> None:
    at_s, places = people(1, 3)
    found = smooth(from_noise(at_s, places[0] + 0.0, 1.0))
    assert np.quantile(distance_m(found.mean(), places[0]), 0.95) < 5.0


@pytest.mark.parametrize("gone_deg", [(-5.0, 8.0), (-80.0, 100.0)])
def test_somebody_who_flies_is_followed_at_both_ends(gone_deg: tuple[float, float]) -> None:
    """The first grid spans continents: its cells are a thousand times as wide as the noise."""
    at_s, places = people(1, 2)
    own = places[0].copy()
    own[len(own) // 2 :] += gone_deg
    own[:, 1] = (own[:, 1] + 180.0) % 360.0 - 180.0
    seen = observed(hereish.whole_day(PRIVACY, window=WINDOW), at_s, own)
    error_m = distance_m(smooth(seen).mean(), own)
    # But for the flight itself.
    assert np.quantile(error_m, 0.9) < 1.1 * np.quantile(distance_m(seen.value, own), 0.9)


def test_noise_without_information_tells_nothing() -> None:
    at_s, places = people(1, 1)
    rng = np.random.default_rng(3)
    anywhere = places[0, 0] + rng.uniform(-0.05, 0.05, (len(at_s), 2))
    found = smooth(from_noise(at_s, anywhere, 1e-9), area=AREA_OF(places))
    # A disc of half of the area.
    assert found.radius_m(0.5).min() > 5000.0


def AREA_OF(places: Floats) -> tuple[Floats, float]:  # noqa: N802  # it is one
    return places[0, :1], 10_000.0


def test_a_repeated_release_is_no_second_evidence() -> None:
    at_s, places = people(1, 1)
    once = from_noise(at_s[:1], places[0, :1], 1e-3)
    thrice = from_noise(at_s[:3], np.repeat(places[0, :1], 3, axis=0), 1e-3)
    assert thrice.hard.tolist() == [True, False, False]
    still = Movement(1e12, returns=0.0)
    first, again = (smooth(seen, still).spread_m()[0] for seen in (once, thrice))
    assert again == pytest.approx(first, rel=0.02)


def test_movement_is_fitted_to_others() -> None:
    rng = np.random.default_rng(2)
    at_s: Floats = np.arange(200.0) * 1800.0
    moved = FRAME.to_degrees(Movement(returns=0.0).draw(rng, np.zeros((50, 2)), at_s))
    offsets = np.arange(51) * 200
    fitted = fit_movement(moved.reshape(-1, 2), np.tile(at_s, 50), offsets)
    # Short steps look like stays.
    assert 3.0 * 3600.0 < fitted.stay_s < 5.0 * 3600.0
    assert fitted.scales_m[0] < 1000.0 < fitted.scales_m[1] < 6000.0 < fitted.scales_m[2]


def test_a_movement_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"weights": (1.0,)}, {"stay_s": 0.0}, {"returns": 1.0}):
        with pytest.raises(hereish.ParameterError):
            Movement(**wrong)
