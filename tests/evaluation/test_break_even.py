"""Where prediction stops paying off."""

from __future__ import annotations

from typing import Any

import pytest

from hereish.evaluation.break_even import find_payoff
from hereish.evaluation.study_settings import StudySettings


def rows(rates: list[float], predictions: list[float]) -> list[dict[str, Any]]:
    made = []
    for i, (rate, prediction) in enumerate(zip(rates, predictions, strict=True)):
        common = {"p": i / 10, "manager": "fixed_utility", "skip": False}
        made += [
            {**common, "mechanism": "predictive", "rate": rate, "prediction_rate": prediction},
            {**common, "mechanism": "independent", "rate": 0.0563, "prediction_rate": 0.0},
        ]
    return made


def test_the_crossing_is_found_between_the_values_that_were_tried() -> None:
    found = find_payoff(rows([0.04, 0.0553, 0.0573], [0.8, 0.5655, 0.3655]), StudySettings())
    assert found.break_even == pytest.approx(0.4655, abs=1e-4)
    assert found.rate_crosses == pytest.approx(0.15)
    assert found.prediction_crosses == pytest.approx(0.15, abs=1e-3)


def test_what_pays_everywhere_or_nowhere_has_no_crossing() -> None:
    assert find_payoff(rows([0.04, 0.05], [0.8, 0.7]), StudySettings())[:2] == (None, None)
    assert find_payoff(rows([0.06, 0.07], [0.3, 0.2]), StudySettings())[:2] == (None, None)
