"""How far reports lie from the truth is counted in little memory, and sent in as many bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hereish.core.types import Floats
from hereish.traces.displacement import Displacements

# Also less than the first bin, and more than half round the globe.
distances = st.lists(st.floats(0.0, 4e7), min_size=1, max_size=200).map(np.array)


def counted(distance_m: Floats) -> Displacements:
    made = Displacements()
    made.add(distance_m)
    return made


@given(distances)
def test_nine_of_ten_are_within_a_thousandth_more(distance_m: Floats) -> None:
    within = counted(distance_m).p90_m
    ninth = np.sort(distance_m)[int(np.ceil(0.9 * len(distance_m))) - 1]
    assert within is not None
    assert within == pytest.approx(np.clip(ninth, 1e-3, 3e7), rel=1.001e-3)
    assert within >= min(ninth, 3e7) * (1 - 1e-12)


@given(distances, distances)
def test_those_that_are_sent_count_the_same_in_wider_bins(some: Floats, others: Floats) -> None:
    received = Displacements.from_bytes(counted(some).to_bytes())
    received.include(Displacements.from_bytes(counted(others).to_bytes()))
    whole = counted(np.concatenate([some, others]))
    assert received.count == whole.count
    assert received.mean_m == pytest.approx(whole.mean_m)
    assert whole.p90_m is not None
    assert received.p90_m is not None
    assert whole.p90_m <= received.p90_m <= 1.0101 * whole.p90_m


def test_how_much_is_sent_does_not_depend_on_what_was_counted() -> None:
    sizes = {len(counted(d).to_bytes()) for d in (np.zeros(0), np.ones(3), np.geomspace(1, 1e7))}
    assert len(sizes) == 1


def test_of_nothing_there_is_no_average() -> None:
    for nothing in (Displacements(), Displacements.from_bytes(Displacements().to_bytes())):
        assert (nothing.count, nothing.mean_m, nothing.p90_m) == (0, None, None)
