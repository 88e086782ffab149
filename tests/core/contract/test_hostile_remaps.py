"""Remappings attacked: they fail and answer nonsense, and what they keep is their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hereish import Line, Manhattan, PartError, Plane, Sphere, sanitize, whole_day
from hereish.core.types import Floats, PerLane
from tests.core.contract.test_hostile_trackers import OwnRemap, report
from tests.support.whole_days import PRIVACY, SPACES, live, people, presets, uniforms

WRONG_REMAPS: dict[str, Callable[[Floats, PerLane], Any]] = {
    "nothing": lambda z, eps: None,
    "NaN": lambda z, eps: z * np.nan,
    "infinite": lambda z, eps: z + np.inf,
    "off the map": lambda z, eps: z + 1e9,
    "a number": lambda z, eps: 5.0,
    "too few": lambda z, eps: z[:0],
    "turned": lambda z, eps: np.zeros((2, len(z) + 1)),
    "texts": lambda z, eps: [["a", "b"]],
    "writes": lambda z, eps: z.__setitem__(0, 0.0),
}


@pytest.mark.parametrize("wrong", WRONG_REMAPS)
def test_a_remapping_that_answers_nonsense_releases_nothing(wrong: str) -> None:
    session = whole_day(PRIVACY, remap=OwnRemap(WRONG_REMAPS[wrong])).session(seed=1)
    with pytest.raises(PartError, match="nothing was released") as failure:
        report(session, 0, (60.17, 24.94))
    assert "60.1" not in str(failure.value)
    assert "24.9" not in str(failure.value)
    assert session.spent > 0.0
    assert not session.run.learnt.any()


def test_a_remapping_is_followed_and_what_it_keeps_is_its_own() -> None:
    kept: list[Floats] = []

    def to_town(z: Floats, eps: PerLane) -> Floats:
        town = np.full(z.shape, 1.0)
        kept.append(town)
        return town

    session = whole_day(PRIVACY, remap=OwnRemap(to_town)).session(seed=1)
    assert report(session, 0, (60.17, 24.94)).value == (1.0, 1.0)
    kept[0][...] = 50.0
    assert session.run.value.tolist() == [[1.0, 1.0]]
    assert session.run.learnt[0, :2].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("place", SPACES)
def test_released_points_lie_on_the_grid_whatever_moved_them(place: str) -> None:
    m = presets(SPACES[place])["whole day"]
    data = people(m.space, [80, 80, 80, 80])
    out = sanitize(m, *data, uniforms=uniforms(m, 320))
    hard = out.value[out.hard]
    assert len(hard) > 20
    np.testing.assert_array_equal(m.space.snap(hard), hard)
    assert type(m.space) in (Line, Manhattan, Plane, Sphere)
    value, _, _ = live(m.session(seed=1), data.points[:80], data.at_s[:80])
    np.testing.assert_array_equal(m.space.snap(value), value)
