"""Made-up households and databases: from a seed, and with the properties that they claim."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from hereish import ParameterError
from hereish.domains.synthetic_counts import histograms, snapshots
from hereish.domains.synthetic_readings import households


def test_the_same_arguments_give_the_same_homes_however_many_there_are() -> None:
    three, five = households(3, 8), households(5, 8)
    assert np.array_equal(three.wh, five.wh[:3])
    assert not np.array_equal(three.wh, households(3, 8, seed=2).wh)
    assert "3" in repr(three)


def test_energy_is_the_same_however_often_it_is_metered() -> None:
    half, quarter = households(2, 8), households(2, 8, every=timedelta(minutes=15))
    assert np.allclose(quarter.wh.reshape(2, -1, 2).sum(axis=2), half.wh)
    assert np.array_equal(quarter.at_s[1::2], half.at_s)


def test_homes_have_what_is_said_of_them() -> None:
    made = households(20, 28)
    days = made.wh.reshape(20, 28, 48)
    assert made.wh.min() > 10.0
    assert np.median(made.wh) < 0.8 * made.wh.mean(), "skewed"
    by_hour = days.mean(axis=(0, 1))
    assert by_hour[36:42].mean() > 2 * by_hour[4:10].mean(), "evenings, and the small hours"
    before = np.abs(np.diff(made.wh, axis=1)).mean()
    yesterday = np.abs(np.diff(days, axis=1)).mean()
    assert before < yesterday, "more like the half hour before than like the day before"
    weekday, weekend = days[:, :5, 20:30].mean(), days[:, 5:7, 20:30].mean()
    assert weekend > 1.15 * weekday
    evening = days[:, :, 36:46].mean(axis=2)
    assert evening[made.home].mean() > 1.5 * evening[~made.home].mean()
    assert 0.5 < made.home.mean() < 0.95


def test_characters_differ_in_how_fast_readings_change() -> None:
    change = {
        name: np.abs(np.diff(households(10, 14, character=name).wh, axis=1)).mean()
        for name in ("steady", "usual", "restless")
    }
    assert change["steady"] < change["usual"] < change["restless"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"count": 0}, "count and days are whole numbers from 1"),
        ({"character": "quiet"}, "character must be one of usual, steady, restless"),
        ({"every": timedelta(minutes=7)}, "every must be 5 minutes or a multiple"),
    ],
)
def test_homes_that_cannot_be_meant_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        households(**wrong)


def test_databases_change_as_much_as_persons_move() -> None:
    changed = {}
    for moving in (0.0, 0.01, 1.0):
        found = snapshots(500, 4, 20, moving=moving)
        assert found.shape == (20, 500)
        changed[moving] = float((found[1:] != found[:-1]).mean())
        bars = histograms(found, 4)
        assert (bars.sum(axis=1) == 500.0).all()
    assert changed[0.0] == 0.0
    assert 0.0 < changed[0.01] < 0.012
    assert changed[1.0] > 0.5
    assert np.array_equal(snapshots(50, 3, 5), snapshots(50, 3, 5))


def test_databases_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ParameterError, match="groups must be a whole number from 1, found 0"):
        snapshots(groups=0)
    with pytest.raises(ParameterError, match="moving must be a share from 0 to 1, found 2"):
        snapshots(moving=2)
