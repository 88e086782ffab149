"""The study of the mobility model: its tables, and whose days they are of."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hereish.evaluation import dataset, mobility_study
from hereish.evaluation.day_study import EVERY_S
from hereish.evaluation.days import select_days
from hereish.synthetic import TIME_ZONE

MOBILITY, GROUP = "mobility model", "the same, of a group"


def test_it_prints_both_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = dataset.synthetic_days(users=8, days=11)
    monkeypatch.setattr(dataset, "synthetic_days", lambda: made)
    monkeypatch.setattr(sys, "argv", ["mobility_study", "--samples", "1", "--time-zone", TIME_ZONE])
    mobility_study.main()
    told = capsys.readouterr().out
    assert "Users with at least 10 days: <" in told
    assert "fewer than 10" not in told, "there are none"
    assert "<MobilityModel 'synthetic, tuned on'" in told
    assert f"| {mobility_study.MEMORY} |" in told
    (row,) = (line for line in told.splitlines() if line.startswith(f"| {mobility_study.MEMORY}"))
    assert row.count("1.000 (1.000 to 1.000)") == 3
    assert all(f"| {name} |" in told for name in (MOBILITY, GROUP))


def test_users_are_those_that_were_not_learnt_from() -> None:
    data = dataset.synthetic_days(users=6, days=3)
    training = dataset.split_users(data.users, dataset.TRAIN_SHARE, 1)
    queries = select_days(data, TIME_ZONE, EVERY_S)
    assert mobility_study.days_of(queries).tolist() == [3] * 6
    group = mobility_study.group_of(data, training, TIME_ZONE)
    own = data.points[np.repeat(training[data.user], np.diff(data.offsets))]
    for place in group.places:
        assert np.abs(own - place).max(axis=1).min() < 5e-3
