"""A mechanism that learns keeps the same few numbers after a year as after a day.

Counted, not timed: sizes of arrays and of the saved state, and NumPy calls and bytecodes of a
report by `sys.setprofile`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from hereish import Session, sanitize
from tests.support.whole_days import SPACES, people, presets, uniforms

DAYS = 120


def calls_of(session: Session, point: Any, at: datetime) -> int:
    """How many calls, of Python and of C, one report makes."""
    counted = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        session.report(point, at)
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize("place", SPACES)
def test_a_lane_holds_the_same_numbers_after_months_as_after_a_day(place: str) -> None:
    m = presets(SPACES[place])["whole day"]
    data = people(m.space, [48 * DAYS])
    at_s = data.at_s[0] + 1800.0 * np.arange(48 * DAYS)
    sizes, run = [], m.run(1)
    for first in range(0, len(at_s), 48 * 20):
        rows = slice(first, first + 48 * 20)
        u = uniforms(m, 48 * 20, first)
        out = sanitize(m, data.points[rows], at_s[rows], [0, 48 * 20], uniforms=u, run=run)
        assert out.run is not None
        run = out.run
        sizes.append([(field.shape, field.dtype) for field in run])
    assert all(size == sizes[0] for size in sizes)
    assert np.count_nonzero(run.learnt) > m.width // 3, "places were learnt"


@pytest.mark.parametrize("place", SPACES)
def test_a_live_report_makes_no_more_calls_after_months_than_in_its_second_week(place: str) -> None:
    m = presets(SPACES[place])["whole day"]
    data = people(m.space, [48 * DAYS])
    session = m.session(seed=1)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    calls: dict[int, list[tuple[bool, int]]] = {}
    states: dict[int, int] = {}
    for i, point in enumerate(data.points.tolist()):
        at, week = start + timedelta(minutes=30 * i), i // (48 * 7)
        if week in (1, 2, DAYS // 7 - 2, DAYS // 7 - 1):
            before = session.run.hard[0]
            count = calls_of(session, point, at)
            calls.setdefault(week, []).append((session.run.hard[0] > before, count))
            states[week] = len(json.dumps(session.to_state()))
        else:
            session.report(point, at)
    weeks = sorted(calls)
    early, late = (calls[a] + calls[b] for a, b in (weeks[:2], weeks[2:]))
    assert min(early)[1] > 100, "calls are being counted"
    # Some come after a silence, and the table of midnights grows once a week.
    for hard in (False, True):
        was, now = ([count for kind, count in some if kind == hard] for some in (early, late))
        for share in (10, 50, 90):
            assert np.percentile(now, share) < 1.15 * np.percentile(was, share)
    assert max(states.values()) < 40 * (m.width + 30)
