"""Counts: how much one person can change them, by enumeration; and whole dashboards."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from hereish import ParameterError, sanitize
from hereish.core.types import Floats
from hereish.domains import count_space, dashboard
from hereish.domains.counts import Neighbours


def all_records(counts: int, per_person: int) -> list[Floats]:
    """What one person can add to the counts: a 1 in some of them."""
    found = []
    for size in range(min(per_person, counts) + 1):
        for chosen in combinations(range(counts), size):
            record = np.zeros(counts)
            record[list(chosen)] = 1.0
            found.append(record)
    return found


@pytest.mark.parametrize("neighbours", ["changed", "added"])
@pytest.mark.parametrize(("counts", "per_person"), [(1, 1), (2, 1), (4, 1), (4, 2), (3, 3), (2, 5)])
def test_neighbours_are_one_person_apart_at_most_and_some_exactly(
    neighbours: Neighbours, counts: int, per_person: int
) -> None:
    """One person before and after; all others are the same in both, and cancel."""
    space = count_space(counts, neighbours=neighbours, per_person=per_person)
    records = all_records(counts, per_person)
    nobody = np.zeros(counts)
    pairs = product(records, records) if neighbours == "changed" else ((r, nobody) for r in records)
    apart = [float(space.distance(a[None], b[None])[0]) for a, b in pairs]
    assert max(apart) == 1.0


def test_as_many_persons_apart_as_differ() -> None:
    rng = np.random.default_rng(1)
    space = count_space(5)
    for _ in range(200):
        one, other = rng.integers(0, 5, (2, 30))
        other = np.where(rng.random(30) < 0.3, other, one)
        counts = [np.bincount(each, minlength=5)[None].astype(float) for each in (one, other)]
        assert space.distance(*counts)[0] <= np.count_nonzero(one != other)


def test_the_guarantee_is_per_person() -> None:
    m = dashboard(math.log(3), counts=4, publications=24)
    assert m.guarantee == (
        "For all reports together: whatever is released is at most 3 times as likely from one "
        "trace as from any other that stays within 1 person(s) of it."
    )
    assert m.private


def test_counts_are_whole_and_within_public_bounds() -> None:
    m = dashboard(1.0, counts=3, publications=30, highest=100.0)
    out = sanitize(m, np.full((30, 3), 40.0), np.arange(30.0), [0, 30], seed=1)
    assert out.released.all()
    assert np.array_equal(out.value, np.rint(out.value))
    assert out.value.min() >= 0.0
    assert out.value.max() <= 100.0
    assert out.spent[0] <= 1.0


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ParameterError, match="neighbours must be 'changed' or 'added'"):
        count_space(3, neighbours="moved")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="per_person must be a whole number from 1, found 0"):
        count_space(3, per_person=0)
    with pytest.raises(ParameterError, match="eps must be a finite number above 0"):
        dashboard(0.0, 3, 10)
    with pytest.raises(ParameterError, match="publications must be a whole number from 1"):
        dashboard(1.0, 3, 0)
