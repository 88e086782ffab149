"""A mechanism replayed from its releases."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import hereish
from hereish.attack.lattice import distance_m
from hereish.attack.observations import promised_log_odds
from hereish.attack.replay import Releases, SettingsMismatchError, replay
from hereish.core import presets
from hereish.core.batch import sanitize
from hereish.core.step import step
from hereish.core.types import Kind
from tests.support.observed import PRIVACY, WINDOW, observed, people, released

WHOLE_DAY = hereish.whole_day(PRIVACY, window=WINDOW)
# Whose places are never frozen: all noise can be found again.
FEW_DAYS = hereish.whole_day(PRIVACY, window=WINDOW, numbers=presets.FEW_DAYS)
PAPER = hereish.fixed_utility(PRIVACY, 3000.0, window=WINDOW, on_exhausted="predict")


@pytest.mark.parametrize("m", [WHOLE_DAY, PAPER], ids=["whole-day", "paper"])
def test_an_observer_knows_each_plan(m: hereish.PredictiveMechanism) -> None:
    at_s, places = people(1, 5)
    seen = observed(m, at_s, places[0])
    out = sanitize(m, places[0], at_s, np.array([0, len(at_s)]), seed=1)
    scale = m.space.claim_factor
    assert np.array_equal(seen.hard, out.hard)
    assert seen.cost == pytest.approx(out.cost * scale, rel=1e-12)
    assert seen.eps_noise[seen.hard] == pytest.approx(out.eps_noise[out.hard] * scale, rel=1e-12)


def test_noise_that_memory_has_moved_is_found_again() -> None:
    """The mechanism's own draws, caught where they are made, against what the observer undoes."""
    at_s, places = people(1, 10, seed=3)
    fresh, releases = _with_fresh_noise(FEW_DAYS, at_s, places[0])
    seen = replay(FEW_DAYS, [releases], windows_apart=False)[0]
    hard = seen.hard
    moved_m = distance_m(seen.value[hard], fresh[hard])
    undone_m = distance_m(seen.noisy[hard], fresh[hard])
    assert hard.sum() > 40
    assert np.median(moved_m) > 500.0  # most of it was moved far
    assert not seen.slack_m.any()
    assert np.quantile(undone_m, 0.9) < 50.0


def _with_fresh_noise(
    m: hereish.PredictiveMechanism, at_s: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, Releases]:
    caught: list[np.ndarray] = []

    @dataclasses.dataclass(frozen=True)
    class Caught(hereish.PlaceMemory):
        def update(self, run, lanes, at_s, fresh, eps_noise, /):  # type: ignore[no-untyped-def]
            caught.append(fresh.copy())
            return super().update(run, lanes, at_s, fresh, eps_noise)

    settings = dataclasses.fields(hereish.PlaceMemory)
    memory = Caught(**{one.name: getattr(m.prediction, one.name) for one in settings})
    watched = dataclasses.replace(m, prediction=memory)
    caught.clear()
    run, rng = watched.run(1), np.random.default_rng(2)
    fresh, values, kinds, costs = [], [], [], []
    for at, place in zip(at_s, places, strict=True):
        release, run = step(
            watched, run, place[None].copy(), np.array([at]), rng.random((1, watched.uniforms))
        )
        hard = bool(release.hard[0])
        fresh.append(caught[-1][0] if hard else [np.nan, np.nan])
        values.append(release.value[0])
        costs.append(release.cost[0])
        tested = np.isfinite(np.ravel(release.threshold)[0])
        kinds.append(Kind.HARD if hard else Kind.EASY if tested else Kind.UNTESTED)
    return np.array(fresh), Releases(at_s, np.array(values), kinds, np.array(costs))


def test_other_settings_are_noticed() -> None:
    at_s, places = people(1, 2)
    releases = released(WHOLE_DAY, at_s, places[0])
    for other in (PAPER, hereish.whole_day(hereish.Privacy(3.0, 100.0), window=WINDOW)):
        with pytest.raises(SettingsMismatchError, match="give the options"):
            replay(other, [releases], windows_apart=False)


def test_without_kinds_and_costs_the_same_is_known() -> None:
    at_s, places = people(1, 3)
    full = released(FEW_DAYS, at_s, places[0])
    plain = full._replace(kind=None, cost=None)
    with_kinds, without = (replay(FEW_DAYS, [one], windows_apart=False)[0] for one in (full, plain))
    assert np.array_equal(with_kinds.hard, without.hard)
    assert np.array_equal(with_kinds.noisy, without.noisy, equal_nan=True)


def test_people_are_replayed_together_as_one_by_one() -> None:
    at_s, places = people(3, 2)
    releases = [
        released(WHOLE_DAY, at_s[: 96 - 7 * i], one[: 96 - 7 * i]) for i, one in enumerate(places)
    ]
    together = replay(WHOLE_DAY, releases, windows_apart=False)
    for one, seen in zip(releases, together, strict=True):
        alone = replay(WHOLE_DAY, [one], windows_apart=False)[0]
        assert np.array_equal(alone.noisy, seen.noisy, equal_nan=True)
        assert np.array_equal(alone.eps_test, seen.eps_test)


@pytest.mark.parametrize("m", [WHOLE_DAY, PAPER], ids=["whole-day", "paper"])
def test_odds_of_two_places_never_pass_the_promise(m: hereish.PredictiveMechanism) -> None:
    at_s, places = people(1, 7)
    seen = observed(m, at_s, places[0])
    rng, told = np.random.default_rng(8), []
    for apart_deg in (1e-3, 1e-2, 0.2):
        for _ in range(40):
            first = places[0, 0] + rng.uniform(-0.1, 0.1, 2)
            log_odds, promised = promised_log_odds(
                seen, first, first + apart_deg * rng.standard_normal(2)
            )
            told.append(abs(log_odds) / promised)
    assert max(told) <= 1.0 + 1e-9
    assert max(told) > 0.05  # it is no empty bound


def test_a_mechanism_that_cannot_be_replayed_is_refused() -> None:
    with pytest.raises(hereish.ParameterError, match="latitude and longitude"):
        replay(hereish.independent(PRIVACY, reports=3, space=hereish.Plane()), [])
