"""Statistical databases: counts and histograms that are published again and again.

A secret is a database, and two databases are as far apart as there are persons in whom they differ:
the Hamming distance of standard differential privacy. What is published of a database is a vector
of counts, which one person can change by a known amount, so counts in the l1 norm over that amount
are a space. What is promised and what is not: docs/statistics.md.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.privacy import Privacy, positive
from hereish.core.vector import Vector
from hereish.core.windows import Window
from hereish.domains.streams import STREAM, Follow, StreamNumbers, stream
from hereish.errors import ParameterError

Neighbours: TypeAlias = Literal["changed", "added"]


def count_space(
    counts: int,
    *,
    neighbours: Neighbours = "changed",
    per_person: int = 1,
    highest: float = math.inf,
) -> Vector:
    """The space of so many counts; its distance is a number of persons.

    A person is in at most `per_person` of the counts: 1 for the bars of a histogram. Databases are
    neighbours if one person's record was "changed" (both have as many persons), or if one was
    "added" or removed. The first moves a person from one count to another, so it changes the sum
    of the counts' differences by 2, and a single count by 1. `highest` is a public bound.
    """
    if neighbours not in get_args(Neighbours):
        raise ParameterError(f"neighbours must be 'changed' or 'added', found {neighbours!r}")
    if isinstance(per_person, bool) or not isinstance(per_person, int) or per_person < 1:
        raise ParameterError(f"per_person must be a whole number from 1, found {per_person!r}")
    at_most = 2 * per_person if neighbours == "changed" else per_person
    sensitivity = float(min(at_most, counts))
    return Vector(counts, "l1", 1.0, 0.0, highest, sensitivity, "person(s)")


def dashboard(
    eps: float,
    counts: int,
    publications: int,
    *,
    neighbours: Neighbours = "changed",
    per_person: int = 1,
    highest: float = math.inf,
    window: Window | str | timedelta | None = None,
    numbers: StreamNumbers = STREAM,
    on_exhausted: OnExhausted = "stop",
) -> PredictiveMechanism:
    """So many counts, published `publications` times per window: eps-differentially private.

    The guess is the last publication. `neighbours` and `per_person` are those of `count_space`.
    Without a window the budget is for all publications together.

    Guarantee: eps-differential privacy for all that is known of one person in one window: whatever
    is published in it is at most exp(eps) times as likely with that person's records as with any
    others in their place, in one snapshot or in all of them.
    """
    space = count_space(counts, neighbours=neighbours, per_person=per_person, highest=highest)
    return stream(
        Privacy(positive("eps", eps), 1.0),
        space,
        publications,
        window=window,
        follow=Follow(space, numbers),
        on_exhausted=on_exhausted,
    )
