"""The study of predictions: who is scored, by what, and what is printed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hereish.evaluation import prediction_study
from hereish.evaluation.movement import ANY, FAST, SLOW, STRAIGHT, made_up_trips
from hereish.evaluation.prediction_study import PREDICTIONS, PredictionStudy


def test_nobody_is_tuned_on_and_scored() -> None:
    study = PredictionStudy(made_up_trips(users=8), most=2_000)
    for movement in (STRAIGHT, FAST, SLOW, ANY):
        scored = set(study.reports(movement, 30.0).user.tolist())
        tuned_on = set(study.reports(movement, 30.0, tuning=True).user.tolist())
        assert scored
        assert tuned_on
        assert not scored & tuned_on


def test_rates_are_those_of_independent_noise_where_nothing_can_be_guessed() -> None:
    """A first report is all noise, and each other the parrot's failure costs its test as well."""
    study = PredictionStudy(made_up_trips(users=4), most=1_000)
    [(situation, scored)] = study.laplace_test([STRAIGHT], (60.0,), (100.0,))
    assert situation.eps_alone == pytest.approx(0.03889720, rel=1e-6)
    parrot = scored["parrot"]
    reports = study.reports(STRAIGHT, 60.0)
    first = 1.0 / np.diff(reports.offsets).mean()
    k = 0.4655
    assert parrot.rate_pooled == pytest.approx(k + 1.0 - parrot.accepted - k * first, abs=0.02)
    assert parrot.error_p90_m == pytest.approx(100.0, rel=0.15)


def test_noise_first_is_tuned_and_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_study, "_SHARES", (0.2,))
    monkeypatch.setattr(prediction_study, "_NEARS", (0.5, 2.0))
    study = PredictionStudy(made_up_trips(users=4), most=600)
    [(situation, rates)] = study.noise_first([(STRAIGHT, 10.0, 300.0)])
    assert situation.movement is STRAIGHT
    assert set(rates) == set(PREDICTIONS)
    assert rates["filter"] < 0.8 * rates["parrot"]
    nobody = PredictionStudy(made_up_trips(users=4), most=600).noise_first(
        [(STRAIGHT._replace(low_kmh=399.0), 10.0, 300.0)]
    )
    assert not list(nobody)


def test_the_command_prints_a_row_for_each_situation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prediction_study, "made_up_trips", lambda: made_up_trips(4, hours=0.75))
    monkeypatch.setattr(prediction_study, "PREDICTIONS", {"parrot": PREDICTIONS["parrot"]})
    monkeypatch.setattr(sys, "argv", ["prediction_study", "--reports", "100"])
    prediction_study.main()
    told = capsys.readouterr()
    assert "made-up" in told.err
    assert told.out.count("| straight and fast |") == 12
    assert told.out.count("| 3 km |") == 12
    assert "Noise first" not in told.out
