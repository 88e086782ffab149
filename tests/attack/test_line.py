"""The observer on a line of readings: likelihoods, noise found again, and a right posterior."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import hereish
from hereish.attack import attack, find_place
from hereish.attack.line import OnLine, Segments
from hereish.attack.meter_observer import observe, observe_w_event
from hereish.attack.movement import Movement
from hereish.attack.observations import Observations, promised_log_odds
from hereish.attack.replay import Releases, SettingsMismatchError, replay
from hereish.attack.smoothing import smooth
from hereish.core.noise_first import NoiseFirst
from hereish.core.step import step
from hereish.core.types import Floats, Kind
from hereish.domains.meter import DailyProfile, smart_meter
from hereish.domains.synthetic_readings import households
from hereish.evaluation.meter_study import DAY, SPACE, USUAL_WH, times_s
from hereish.evaluation.stream_baselines import budget_absorption
from tests.attack.test_smoothing import is_uniform

PRIVACY = hereish.Privacy(math.log(10.0), 20.0)
METER = smart_meter(PRIVACY, window=DAY)
ON_LINE = OnLine.of(SPACE)


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("threshold_wh", [-30.0, 0.0, 55.0])
def test_the_chance_of_a_guess_is_that_of_noise_drawn_first(
    share: float, threshold_wh: float
) -> None:
    """Against a sum over noise; and it changes no faster than the test promises."""
    eps = 0.02
    distance = np.array([0.0, 20.0, 54.0, 56.0, 150.0, 400.0])
    noise = np.linspace(-2000.0, 2000.0, 400_001)
    law = np.exp(-eps * np.abs(noise))
    law /= law.sum()
    apart = np.abs(distance[:, None] + noise)
    wanted = NoiseFirst.acceptance(apart, share * eps, threshold_wh) @ law
    found = ON_LINE.log_accepted(distance, share * eps, eps, threshold_wh)
    np.testing.assert_allclose(np.exp(found), wanted, rtol=1e-4)
    fine = np.linspace(0.0, 3000.0, 3001)
    slopes = np.diff(ON_LINE.log_accepted(fine, share * eps, eps, threshold_wh))
    assert np.abs(slopes).max() <= share * eps * (1.0 + 1e-9)


def _with_fresh_noise(truth: Floats, at_s: Floats, seed: int) -> tuple[Floats, Releases]:
    """The mechanism's own draws, caught where they are made, and what is released."""
    caught: list[Floats] = []

    @dataclasses.dataclass(frozen=True)
    class Caught(DailyProfile):
        def update(self, run, lanes, at_s, fresh, eps_noise, /):  # type: ignore[no-untyped-def]
            caught.append(fresh.copy())
            return super().update(run, lanes, at_s, fresh, eps_noise)

    settings = dataclasses.fields(DailyProfile)
    profile = Caught(**{one.name: getattr(METER.prediction, one.name) for one in settings})
    budget = dataclasses.replace(METER.budget, follow=profile)  # type: ignore[type-var]
    watched = dataclasses.replace(METER, prediction=profile, budget=budget)
    run, rng = watched.run(1), np.random.default_rng(seed)
    fresh, values, kinds, costs = [], [], [], []
    for at, wh in zip(at_s, truth, strict=True):
        u = rng.random((1, watched.uniforms))
        release, run = step(watched, run, np.array([[wh]]), np.array([at]), u)
        hard = bool(release.hard[0])
        fresh.append(caught[-1][0, 0] if hard else np.nan)
        values.append(release.value[0])
        costs.append(release.cost[0])
        tested = np.isfinite(np.ravel(release.threshold)[0])
        kinds.append(Kind.HARD if hard else Kind.EASY if tested else Kind.UNTESTED)
    return np.array(fresh), Releases(at_s, np.array(values), kinds, np.array(costs))


def test_noise_that_the_profile_has_moved_is_found_again() -> None:
    truth = households(1, 10, seed=4).wh[0]
    fresh, releases = _with_fresh_noise(truth, times_s(len(truth)), seed=2)
    seen = replay(METER, [releases], windows_apart=False)[0]
    hard = seen.hard
    np.testing.assert_array_equal(hard, fresh == fresh)
    assert hard.sum() > 20
    moved, undone = (np.abs(each[hard, 0] - fresh[hard]) for each in (seen.value, seen.noisy))
    assert np.median(moved) > 10.0
    assert np.quantile(undone, 0.9) <= 2.0
    assert seen.cost == pytest.approx(np.asarray(releases.cost), rel=1e-9)


def test_other_settings_are_noticed() -> None:
    truth = households(1, 2, seed=4).wh[0]
    _, releases = _with_fresh_noise(truth, times_s(len(truth)), seed=2)
    other = smart_meter(hereish.Privacy(3.0, 20.0), window=DAY)
    with pytest.raises(SettingsMismatchError):
        replay(other, [releases], windows_apart=False)
    with pytest.raises(hereish.ParameterError, match="one number"):
        replay(hereish.independent(PRIVACY, reports=3, space=hereish.Vector(2)), [releases])


def test_odds_of_two_readings_never_pass_the_promise() -> None:
    truth = households(1, 3, seed=4).wh
    seen = observe(METER, truth, times_s(truth.shape[1]), seed=1)[0]
    rng, told = np.random.default_rng(8), []
    for apart_wh in (1.0, 20.0, 300.0):
        for first in rng.uniform(0.0, 1500.0, (12, 1)):
            log_odds, promised = promised_log_odds(seen, first, first + apart_wh)
            told.append(abs(log_odds) / promised)
    assert max(told) <= 1.0 + 1e-9
    assert max(told) > 0.05  # it is no empty bound


def test_readings_have_no_home() -> None:
    truth = households(1, 1, seed=4).wh
    (seen,) = observe(METER, truth, times_s(truth.shape[1]), seed=1)
    with pytest.raises(hereish.ParameterError, match="places on the globe"):
        find_place(seen, "UTC")
    with pytest.raises(hereish.ParameterError, match="places on the globe"):
        attack(seen)


# Readings that move as the observer assumes.
HOMES, TIMES_S = 300, times_s(8)
MOVEMENT = Movement(3600.0, (0.15, 0.6), (0.5, 0.5), 1800.0, returns=0.0)
AREA = (np.array([[2.0], [4999.0]]), 0.0)
SMALL_WH = 30.0
MECHANISMS = {
    "meter": METER,
    "paper": hereish.fixed_utility(
        hereish.Privacy(math.log(10.0), 5.0), 150.0, prediction_rate=0.9, space=SPACE
    ),
}


@pytest.fixture(scope="module")
def paths() -> Floats:
    """(homes, times) Wh: anywhere between 80 Wh and 1.6 kWh at first, then as the model says."""
    rng = np.random.default_rng(4)
    low, high = np.arcsinh(np.array([80.0, 1600.0]) / SMALL_WH)
    start = rng.uniform(low, high, (HOMES, 1))
    return np.asarray(SMALL_WH * np.sinh(MOVEMENT.draw(rng, start, TIMES_S)[..., 0]))


def levels(seen: list[Observations], paths: Floats) -> Floats:
    """One level per home, at a time of its own, so that they are independent."""
    rng, drawn = np.random.default_rng(6), []
    for number, (own, path) in enumerate(zip(seen, paths, strict=True)):
        time = number % len(TIMES_S)
        smoothed = smooth(own, MOVEMENT, area=AREA)
        drawn.append(smoothed.level_of(time, path[time : time + 1], rng.random()))
    return np.array(drawn)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_region_of_each_share_holds_the_truth_as_often(name: str, paths: Floats) -> None:
    """n = 300 homes, alpha = 1e-6, as on the globe: 90 % regions that are off by 8.5 points."""
    assert is_uniform(levels(observe(MECHANISMS[name], paths, TIMES_S, seed=11), paths))


def test_a_wrong_likelihood_is_noticed(paths: Floats) -> None:
    seen = observe(MECHANISMS["paper"], paths, TIMES_S, seed=11)
    wrong = [dataclasses.replace(own, eps_noise=2.5 * own.eps_noise) for own in seen]
    assert not is_uniform(levels(wrong, paths))


def test_cells_hold_the_numbers_that_they_cover() -> None:
    lattice = ON_LINE.covering(np.array([[0.0], [900.0]]), 50.0, 320)
    assert isinstance(lattice, Segments)
    for i, middle in enumerate(lattice.points()):
        assert lattice.cell_at(middle) == (i,)
    mass = np.zeros(lattice.shape, dtype=np.float32)
    mass[40] = 1.0
    np.testing.assert_allclose(lattice.mean_of(mass), lattice.points()[40])
    assert lattice.spread_of(mass) == 0.0
    assert lattice.cell_at(np.array([5000.0])) is None
    widths = 2.0 * np.asarray(lattice.half_diagonal_m)
    assert lattice.radius_of(np.ones(lattice.shape, dtype=np.bool_)) == pytest.approx(
        0.5 * widths.sum()
    )


def test_the_rules_of_budget_absorption_are_replayed() -> None:
    """Of n = 2,300 publications noise times its planned epsilon is 1 on average; six standard
    errors are 0.13, alpha 2e-9. Half of it is what other rules would have planned.
    """
    truth = households(6, 28, seed=4).wh
    eps, w = PRIVACY.eps_per_m, 48
    raw = budget_absorption(
        truth[:, :, None], eps, w, np.random.default_rng(3), sensitivity=1.0, first=USUAL_WH
    )[..., 0]
    at_s, scaled = times_s(truth.shape[1]), []
    for own, published in zip(truth, raw, strict=True):
        seen = observe_w_event("BA (w-event)", published, at_s, eps, w, USUAL_WH, SPACE)
        assert seen is not None
        scaled.append((np.abs(published - own) * seen.eps_noise)[seen.hard])
        assert seen.cost.reshape(-1, w).sum(axis=1).max() <= eps * (1.0 + 1e-9)
    noise = np.concatenate(scaled)
    assert len(noise) > 2000
    assert abs(noise.mean() - 1.0) < 6.0 / math.sqrt(len(noise))
    other = observe_w_event("BD (w-event)", raw[0], at_s, eps, w, USUAL_WH, SPACE)
    assert other is not None
    control = (np.abs(raw[0] - truth[0]) * other.eps_noise)[other.hard]
    assert abs(control.mean() - 1.0) > 6.0 / math.sqrt(len(control))
    assert observe_w_event("FAST (Kalman, PID)", raw[0], at_s, eps, w, USUAL_WH, SPACE) is None
