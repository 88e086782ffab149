"""Lemma 1, exactly, for predictions that move on; what was learnt counts as released here.

On a few places in a row, where a prediction guesses others than the last release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hereish import (
    Ensemble,
    Filter,
    LaplaceTest,
    Line,
    Linear,
    Mobility,
    NoiseFirst,
    Parrot,
    PlaceMemory,
    Plan,
    Prediction,
    PredictiveMechanism,
    Privacy,
    Run,
)
from hereish.core.types import Floats, Ints
from tests.support.exact_runs import RAREST, STEPS, Cell, Places, all_runs, excess_of, losses

AT_S = [0.0, 10.0, 20.0, 30.0]
TOTAL = 20.0
TOLERANCE = STEPS * 2.0**-27  # test_lemma1_noise_first has why; of tests first it is far less
LINE = Line()  # they work on any one number
PREDICTIONS: dict[str, Prediction] = {
    "linear": Linear(LINE, points=3, turn=1.2, sure=0.1),
    "filter": Filter(LINE, speed=0.2, agility=1e-4, sure=0.1, turn=1.5),
    "mobility": Mobility(
        *(LINE, "UTC", 3),
        reach=1.0,
        blur=0.1,
        habit=0.1,
        moves=0.1,
        sure=1.0,
        silence_s=1.0,
        stay_s=1.0,
    ),
}
MOVING = (PREDICTIONS["linear"], PREDICTIONS["filter"])
PREDICTIONS["ensemble"] = Ensemble(LINE, (*MOVING, Parrot()), lead=1.0)
PREDICTIONS["paper's ensemble"] = Ensemble(LINE, (*MOVING, Parrot()), rule="asked")
PREDICTIONS["places"] = PlaceMemory(LINE, places=2, reach=2.0, silence_s=5.0)  # which are asked for


def plan(run: Run, at_s: Floats, /) -> Plan:
    """Strict tests; the noise follows what is left, so that weights differ."""
    eps_noise = 1.6 * (TOTAL - run.spent) / TOTAL
    return Plan(0.25 * eps_noise, eps_noise, np.full(len(at_s), 0.4))


def build(prediction: Any, decision: Any, places: int = 3) -> PredictiveMechanism:
    return PredictiveMechanism(
        Privacy(TOTAL, 1.0), plan, Places(places), prediction=prediction, decision=decision
    )


@pytest.mark.parametrize("decision", [NoiseFirst(), LaplaceTest()], ids=["noise first", "laplace"])
@pytest.mark.parametrize("name", PREDICTIONS)
def test_every_run_is_as_private_as_its_released_costs_say(name: str, decision: Any) -> None:
    m = build(PREDICTIONS[name], decision)
    runs = all_runs(m, AT_S)
    excess, share = losses(m, runs)
    assert runs.rarest > 2.0**-24 * RAREST
    assert excess <= TOLERANCE
    assert share > 0.9, "the bound is nearly met, not only kept"
    value, hard = runs.field("value"), runs.field("hard") == 1.0
    moved = ~hard[:, 1:] & (value[:, 1:] != value[:, :-1])
    assert moved.any(), "a guess that was accepted is another than the last release"


@pytest.mark.parametrize("name", ["linear", "ensemble"])
def test_one_that_learns_the_secret_from_round_the_back_is_caught(name: str) -> None:
    cell, kind = Cell(), type(PREDICTIONS[name])

    @dataclass(frozen=True)
    class Knowing(kind):  # type: ignore[misc, valid-type]  # whichever it is
        def update(self, run: Run, lanes: Ints, *rest: Any) -> tuple[Floats, Floats]:
            released, learnt = super().update(run, lanes, *rest)
            if len(cell.secret) == len(run.spent):
                learnt = learnt + 1e-6 * cell.secret[lanes]
            return released, learnt

    settings = {
        field: getattr(PREDICTIONS[name], field)
        for field, about in kind.__dataclass_fields__.items()  # type: ignore[attr-defined]  # it is
        if about.init
    }
    assert excess_of(build(Knowing(**settings), NoiseFirst()), AT_S, cell) == np.inf
