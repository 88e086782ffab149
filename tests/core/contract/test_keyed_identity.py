"""KeyedDraws: the same report gets the same uniforms, and nothing else ever gets them.

Whoever sees two releases of one secret made with the same uniforms and different budgets solves
two equations for it, so the identity that uniforms come from must leave nothing out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from hereish import KeyedDraws, Line, Privacy, Report, fixed_rate, independent

KEY = bytes(range(32))
START = datetime(2024, 3, 9, 20, 0, tzinfo=UTC)
START_S = START.timestamp()
PRIVACY = Privacy(math.log(10.0), 100.0)


def identities() -> Iterator[tuple[str, int, int, float, tuple[float, float]]]:
    """One report, then the same with one thing about it changed, as little as can be."""
    user, window, reports, at_s, (lat, lon) = "ann", 19_000, 4, START_S, (60.17, 24.94)
    yield user, window, reports, at_s, (lat, lon)
    for name in ("anna", "an", "Ann", "ann\0", "", "ånn"):
        yield name, window, reports, at_s, (lat, lon)
    for number in (window + 1, window - 1, -window, np.iinfo(np.int64).min):
        yield user, number, reports, at_s, (lat, lon)
    yield user, window, reports + 1, at_s, (lat, lon)
    yield user, reports, window, at_s, (lat, lon)
    yield user, window, reports, math.nextafter(at_s, 0.0), (lat, lon)
    yield user, window, reports, at_s, (math.nextafter(lat, 0.0), lon)
    yield user, window, reports, at_s, (lat, math.nextafter(lon, 90.0))
    yield user, window, reports, at_s, (lon, lat)


@pytest.mark.parametrize("count", [1, 4, 8, 9, 20])
def test_keyed_uniforms_change_with_any_part_of_the_identity_of_a_report(count: int) -> None:
    draws = KeyedDraws(KEY)
    names, windows, reports, times, places = zip(*identities(), strict=True)
    rows = (np.array(windows), np.array(reports), np.array(times), np.array(places))
    together = draws.derive(names, *rows, count)
    assert ((together > 0.0) & (together < 1.0)).all()
    # Every single uniform differs, between reports and within one.
    assert len(np.unique(together)) == together.size
    for i, name in enumerate(names):
        window, step, at_s, place = (row[i : i + 1] for row in rows)
        alone = draws.derive([name], window, step, at_s, place, count)
        assert alone.tobytes() == together[i].tobytes()
    assert not np.isin(KeyedDraws(KEY[::-1]).derive(names, *rows, count), together).any()
    # The same place, written in two ways, is the same report.
    one, plus, minus = np.ones(1, dtype=np.int64), np.array([[0.0]]), np.array([[-0.0]])
    same_place = [draws.derive(["ann"], one, one, np.ones(1), x, count) for x in (plus, minus)]
    assert same_place[0].tobytes() == same_place[1].tobytes()


def solved(one: Report, other: Report) -> float:
    """The secret, if both releases are it plus the same noise over their budgets."""
    paid = one.cost - other.cost
    return float((one.cost * one.value - other.cost * other.value) / paid)


def test_two_mechanisms_with_one_key_do_not_share_their_noise() -> None:
    # A coarse feed for all and a finer one for friends, say, or a setting changed between tries.
    errors = []
    for day in range(20):
        secret, at = 1000.0 * day, START + timedelta(days=day)
        coarse, fine = (
            independent(PRIVACY, reports=reports, space=Line())
            .session(draws=KeyedDraws(KEY), user="ann")
            .report(secret, at)
            for reports in (10, 5)
        )
        errors.append(abs(solved(coarse, fine) - secret))
    assert np.median(errors) > 10.0, "two releases together give the secret away"


def test_a_report_after_another_history_does_not_share_its_noise() -> None:
    # A second try that differs in one earlier point, and so in what is planned from there on. The
    # test costs a fixed share of the noise, so the costs stand to each other as the noises do.
    m = fixed_rate(PRIVACY, 4, gamma=3.0, prediction_rate=0.9, space=Line())

    def third(second: float, secret: float, at: datetime) -> Report:
        session = m.session(draws=KeyedDraws(KEY), user="ann")
        session.report(0.0, at)
        session.report(second, at)
        return session.report(secret, at)

    errors = []
    for day in range(200):
        secret, at = 1e6 + day, START + timedelta(days=day)
        one, other = third(0.0, secret, at), third(1e6, secret, at)
        if one.kind == other.kind == "hard" and one.cost != other.cost:
            errors.append(abs(solved(one, other) - secret))
    assert len(errors) > 10
    assert np.median(errors) > 10.0, "two releases together give the secret away"
