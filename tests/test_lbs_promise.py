"""Queries made of releases find all that is nearby as often as promised, on the real mechanism.

400,000 reports for most frequencies, alpha = 1e-6, fixed seeds. The mechanism's guess is
chosen by an adversary who knows where the user is and how large the query will be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from pyproj import Geod

import hereish
from hereish import lbs
from hereish.core.run import Run
from hereish.core.types import Bools, Floats
from tests.support.laws import ALPHA, at_least

N = 400_000
R_M, DELTA = 500.0, 0.9
PRIVACY = hereish.Privacy(level=np.log(10), radius_m=100)
SPHERE, WGS84 = hereish.Sphere(), Geod(ellps="WGS84")
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
# Great circles are longest against geodesics at the equator, and shortest next to a pole.
PLACES = {"equator": (0.5, 10.0), "Helsinki": (60.17, 24.94), "pole": (88.0, 0.0)}
SOUTH_DEG_PER_M = 1.0 / 111_195.0


@dataclass(frozen=True)
class Adversary:
    """Guesses the same place whatever happened before."""

    guess: tuple[float, float]

    needs_history = True
    memory = 1

    def __call__(self, run: Run, at_s: Floats, /) -> Floats:
        return np.broadcast_to(np.array(self.guess), run.value.shape)


@dataclass(frozen=True)
class Outcome:
    """Many first reports of one place; all have the same plan, so one report a kind tells all."""

    hard: Bools
    great_circle_m: Floats
    geodesic_m: Floats
    plan: tuple[float, float, float]

    def report(self, kind: hereish.Kind) -> hereish.Report:
        return hereish.Report((0.0, 0.0), kind, 0.0, NOON, "", *self.plan)

    def radii_m(self, radius_m: Callable[[hereish.Report], float]) -> Floats:
        hard_m, easy_m = (
            radius_m(self.report(hereish.Kind.HARD)),
            radius_m(self.report(hereish.Kind.EASY)),
        )
        return np.where(self.hard, hard_m, easy_m)


def reported(place: tuple[float, float], guess_m: float | None, seed: int, n: int = N) -> Outcome:
    """`n` reports of a place, with a guess that is `guess_m` south of it, or without any."""
    if guess_m is None:
        m = hereish.independent(PRIVACY, accuracy_m=3000)
    else:
        guess = (place[0] - guess_m * SOUTH_DEG_PER_M, place[1])
        # With eta = 1 both radii of Proposition 1 are the same, its worst case.
        settings = {"eta": 1.0, "gamma": 0.8, "delta": DELTA, "prediction_rate": 0.95}
        m = hereish.fixed_utility(PRIVACY, 3000, prediction=Adversary(guess), **settings)  # type: ignore[arg-type]  # floats
    true = np.broadcast_to(np.array(place), (n, 2))
    out = hereish.sanitize(m, true, np.zeros(n), np.arange(n + 1), seed=seed)
    assert out.released.all()
    away = WGS84.inv(true[:, 1], true[:, 0], out.value[:, 1], out.value[:, 0])[2]
    plan = (float(out.eps_test[0]), float(out.eps_noise[0]), float(out.threshold[0]))
    return Outcome(np.asarray(out.hard), SPHERE.distance(true, out.value), away, plan)


def kept(failures: Bools, delta: float = DELTA) -> bool:
    """Whether so many failures can be chance if each has probability 1 - delta or less."""
    return at_least(int(failures.sum()), len(failures), 1.0 - delta) >= ALPHA


def reach_m(report: hereish.Report) -> float:
    return lbs.reach(report, r_m=R_M, delta=DELTA) or np.nan


def proposition_1_m(report: hereish.Report) -> float:
    """The paper's radius for a whole step, enlarged by r in the same way."""
    hard_m = lbs.accuracy_m(replace(report, kind=hereish.Kind.HARD), delta=DELTA)
    easy_m = lbs.accuracy_m(replace(report, kind=hereish.Kind.EASY), delta=DELTA)
    assert hard_m is not None
    assert easy_m is not None
    assert hard_m == pytest.approx(easy_m, rel=0.005), "the worst case"
    return max(hard_m, easy_m) + R_M / SPHERE.claim_factor


def easy_radius_m(delta: float) -> float:
    """How far a guess may be at this delta, before the adversary has chosen one."""
    easy = reported(PLACES["Helsinki"], 0.0, seed=1, n=10).report(hereish.Kind("easy"))
    return lbs.accuracy_m(easy, delta=delta) or np.nan


def missed(out: Outcome, radii_m: Floats) -> tuple[Bools, Bools]:
    """Where something within r of the user may lie outside, in both kinds of metres."""
    return out.great_circle_m + R_M > radii_m, out.geodesic_m + R_M > radii_m


# The adversary's choices: near, at the threshold, just beyond each radius, and absurd.
GUESSES_M = {
    "perfect": 0.0,
    "beyond Proposition 1": easy_radius_m(DELTA) + 15.0,  # and beyond the noise's radius
    "just within": easy_radius_m(DELTA**0.5) - 50.0,
    "just beyond": easy_radius_m(DELTA**0.5) * 1.006 + 5.0,
    "absurd": 1e6,
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("guess_m", GUESSES_M.values(), ids=GUESSES_M)
def test_a_query_finds_all_that_is_nearby_whatever_the_guess(
    place: tuple[float, float], guess_m: float
) -> None:
    out = reported(place, guess_m, seed=701, n=N // 4)
    for failures in missed(out, out.radii_m(reach_m)):
        assert kept(failures)


def test_the_radius_is_hardly_larger_than_the_promise_needs() -> None:
    out = reported(PLACES["Helsinki"], GUESSES_M["just beyond"], seed=702)
    failures, _ = missed(out, out.radii_m(reach_m))
    assert failures.mean() > 0.9 * (1.0 - DELTA), "the adversary comes close to the promise"


def test_control_proposition_1_at_delta_breaks_the_promise() -> None:
    out = reported(PLACES["Helsinki"], GUESSES_M["beyond Proposition 1"], seed=703)
    failures, _ = missed(out, out.radii_m(proposition_1_m))
    assert not kept(failures)
    assert kept(failures, DELTA**2), "but never worse than delta squared"
    assert failures.mean() > 0.9 * (1.0 - DELTA**2)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_fresh_noise_without_a_test_needs_no_more_than_delta(place: tuple[float, float]) -> None:
    out = reported(place, None, seed=704)
    assert out.hard.all()
    radius_m = reach_m(out.report(hereish.Kind("hard")))
    for failures in missed(out, np.full(N, radius_m)):
        assert kept(failures)
    assert reach_m(out.report(hereish.Kind("hard"))) < 3000.0 * 1.02 + R_M


def test_control_a_radius_that_forgets_what_is_really_drawn_breaks_the_promise() -> None:
    out = reported(PLACES["pole"], None, seed=705)
    plain_m = SPHERE.c_noise(DELTA) / out.report(hereish.Kind("hard")).eps_noise
    assert not kept(out.geodesic_m > plain_m), "eps is scaled, and geodesics are longer here"


def test_each_kind_keeps_its_own_promise() -> None:
    """Noise, among the hard reports alone; and a guess beyond its radius passes rarely enough."""
    out = reported(PLACES["Helsinki"], easy_radius_m(DELTA) + 5.0, seed=706)
    hard_m = lbs.accuracy_m(out.report(hereish.Kind("hard")), delta=DELTA)
    assert hard_m is not None
    assert kept((out.great_circle_m > hard_m)[out.hard])
    assert not kept((out.great_circle_m > 0.98 * hard_m)[out.hard]), "control"
    assert kept(~out.hard)


def test_control_a_guess_at_the_threshold_passes_too_often() -> None:
    threshold_m = reported(PLACES["Helsinki"], 0.0, seed=1, n=10).plan[2]
    out = reported(PLACES["Helsinki"], threshold_m, seed=707)
    assert not kept(~out.hard)


def test_rounding_to_a_coarse_grid_is_covered() -> None:
    """With two decimals a cell is a kilometre wide, and the noise a fifth of that."""
    coarse = hereish.Sphere(decimals=2)
    m = hereish.independent(PRIVACY, accuracy_m=200, space=coarse)
    true = np.broadcast_to(np.array([10.0049, 10.0049]), (N, 2))
    out = hereish.sanitize(m, true, np.zeros(N), np.arange(N + 1), seed=708)
    plan = (0.0, float(out.eps_noise[0]), -np.inf)
    hard = hereish.Report((0.0, 0.0), hereish.Kind.HARD, 0.0, NOON, "", *plan)
    away_m = SPHERE.distance(true, out.value)
    assert kept(away_m > (lbs.accuracy_m(hard, delta=DELTA, space=coarse) or np.nan))
    fine_m = lbs.accuracy_m(hard, delta=DELTA) or np.nan
    assert not kept(away_m > fine_m), "control: a grid of a metre"
