"""What a burglar and a supplier learn by the observer, beside taking releases as they come."""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest

from hereish.attack import meter_study
from hereish.attack.line import OnLine
from hereish.attack.meter_observer import prior_of
from hereish.attack.meter_study import Told, look_at
from hereish.core.types import Floats
from hereish.domains.synthetic_readings import households
from hereish.evaluation.meter_study import DAY, INDEPENDENT, PROFILE
from hereish.evaluation.supplier import bill_error, day_error

SLOTS = 48


@cache
def looked() -> tuple[Floats, dict[str, Told]]:
    truth = households(5, 5, seed=2).wh
    return truth, look_at(truth, 20.0, DAY, prior_of(households(10, 5, seed=3).wh))


@pytest.mark.parametrize("name", [INDEPENDENT, "BA (w-event)", PROFILE])
def test_the_observer_knows_readings_and_days_better_and_bills_of_clipped_noise(name: str) -> None:
    truth, told = looked()
    plain, observed = told[name]
    assert observed is not None
    for each in (plain, observed):
        assert each.wh.shape == truth.shape
    assert np.abs(observed.wh - truth).mean() < np.abs(plain.wh - truth).mean()
    assert day_error(observed.wh, truth, SLOTS) < day_error(plain.wh, truth, SLOTS)
    if name != PROFILE:  # which is clipped seldom, so that its sums are not biased
        assert bill_error(observed.wh, truth) < 0.7 * bill_error(plain.wh, truth)
    assert ((observed.busy >= 0.0) & (observed.busy <= 1.0 + 1e-6)).all()


def test_the_prior_is_that_of_other_homes() -> None:
    """Control: without a release that tells anything, the observer has what the others have."""
    known = np.array([100.0] * 90 + [1000.0] * 10)
    lattice = OnLine(1.0, 0.0, 5000.0, 1.0).covering(np.array([[0.0], [4000.0]]), 10.0, 320)
    mass = prior_of(known)(lattice)
    assert mass.sum() == pytest.approx(1.0, rel=0.01)
    assert mass[lattice.points()[:, 0] < 300.0].sum() == pytest.approx(0.9, abs=0.01)


def test_the_command_prints_its_tables(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter_study, "RADII_WH", (20.0,))
    monkeypatch.setattr(sys, "argv", ["meter_study", "--homes", "4", "--days", "2"])
    meter_study.main()
    printed = capsys.readouterr().out
    assert printed.count(f"| {PROFILE} |") == 3 + 4 + 4
    assert printed.count("| the clock alone |") == 1
    assert printed.count("→ –") == 11, "FAST is not replayed"
