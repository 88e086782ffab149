"""Lemma 1 where secrets are vectors, checked exactly on every run; seeded bugs must be caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hereish import LaplaceTest, NoiseFirst, Plan, PredictiveMechanism, Privacy, Run
from hereish.core.types import Floats
from tests.support.exact_lattice import Counts, Lattice, losses_between
from tests.support.exact_runs import Places, all_runs

TIMES = [0.0, 60.0, 120.0]
TOLERANCE = len(TIMES) * 2.0**-27  # as for noise first on places in a row


def plan(run: Run, at_s: Floats, /) -> Plan:
    return Plan(0.4, 1.1, 0.8)


def build(space: Places, decision: Any, **rest: Any) -> PredictiveMechanism:
    return PredictiveMechanism(Privacy(30.0, 1.0), plan, space, decision=decision, **rest)


def apart_on(space: Places) -> Floats:
    points = np.arange(float(space.count))
    one, other = (each.reshape(-1, 1) for each in np.meshgrid(points, points, indexing="ij"))
    return space.distance(one, other).reshape(space.count, -1)


MECHANISMS = {
    "pairs, noise first": build(Lattice(side=2), NoiseFirst()),
    "pairs, test then noise": build(Lattice(side=2), LaplaceTest()),
    "pairs of three, two per unit": build(Lattice(side=3, sensitivity=2.0), NoiseFirst()),
    "a real vector": build(Counts(4), LaplaceTest()),
    "a real vector, two per unit": build(Counts(4, sensitivity=2.0), LaplaceTest()),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_run_is_as_private_as_its_released_costs_say(name: str) -> None:
    m = MECHANISMS[name]
    assert isinstance(m.space, Places)
    times = TIMES[:2] if m.space.count > 4 else TIMES
    runs = all_runs(m, times)
    excess, share = losses_between(m, runs, apart_on(m.space), len(times))
    assert excess <= TOLERANCE
    assert share > 0.95, "the bound is nearly met, not only kept"
    hard = runs.field("hard") == 1.0
    assert hard.all(axis=1).any()
    assert (~hard[:, 1:]).all(axis=1).any()


@pytest.mark.parametrize("decision", [NoiseFirst(), LaplaceTest()], ids=repr)
def test_noise_of_the_wrong_sensitivity_is_caught(decision: Any) -> None:
    """Drawn for a change by 1 where a unit changes the numbers by 2."""
    m = build(Lattice(side=2, sensitivity=2.0, eps_error=2.0), decision)
    excess, _ = losses_between(m, all_runs(m, TIMES), apart_on(Lattice(side=2, sensitivity=2.0)), 3)
    assert excess > 0.5


def test_a_distance_that_is_too_large_is_caught() -> None:
    """Promised: the largest of both numbers' changes, while the noise is for their sum."""
    m = build(Lattice(side=2), NoiseFirst())
    numbers = Lattice(side=2).numbers(np.arange(4.0)[:, None])
    largest = np.abs(numbers[:, None] - numbers[None, :]).max(axis=2)
    excess, _ = losses_between(m, all_runs(m, TIMES), largest, 3)
    assert excess > 0.5
