"""An app that finds what is nearby without telling the service where its user is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.stats import binom

import hereish
from hereish import lbs
from hereish.testing import FixedDraws
from tests.support.poi_server import CENTRE, PoiServer, poi_server

ALPHA = 1e-6
R_M, DELTA = 400.0, 0.9
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
HERE = (60.1699123, 24.9384567)
MECHANISM = hereish.fixed_utility(
    hereish.Privacy(level=math.log(10), radius_m=100), accuracy_m=1000
)


class App:
    """What a developer writes: a session, a service, and a filter."""

    def __init__(self, session: hereish.Session, url: str, radius_m: float | None = None) -> None:
        self.session = session
        self.url = url
        self.radius_m = radius_m  # of a developer who does not enlarge queries
        self.http = httpx.Client(trust_env=False)

    def nearby(self, true_place: tuple[float, float], at: datetime) -> list[dict[str, Any]]:
        report = self.session.report(true_place, at)
        asked = lbs.query(report, r_m=R_M, delta=DELTA)
        assert asked is not None
        params = {"lat": asked.lat, "lon": asked.lon, "radius": self.radius_m or asked.radius_m}
        answer = self.http.get(self.url, params=params).json()
        return lbs.nearby(answer["elements"], true_place, r_m=R_M)


@pytest.fixture
def poi() -> Iterator[PoiServer]:
    with poi_server() as running:
        yield running


def test_the_answer_is_what_the_true_place_would_have_given(poi: PoiServer) -> None:
    app = App(MECHANISM.session(seed=3), poi.url)
    with app.http:
        found = app.nearby(HERE, NOON)
    assert found
    assert found != poi.within(*HERE, R_M), "the nearest is first"
    assert sorted(p["id"] for p in found) == [p["id"] for p in poi.within(*HERE, R_M)]


def test_the_service_never_sees_a_true_coordinate(poi: PoiServer) -> None:
    app = App(MECHANISM.session(seed=4), poi.url)
    with app.http:
        for minute in range(3):
            app.nearby(HERE, NOON + timedelta(minutes=minute))
    assert len(poi.log) == 3
    for line in poi.log:
        assert "60.1699" not in line
        assert "24.93845" not in line
    released = app.session.run.value[0].tolist()
    assert f"lat={released[0]}&lon={released[1]}&radius=" in poi.log[-1], "the log is one"


def test_two_true_places_with_the_same_guess_make_the_same_queries(poi: PoiServer) -> None:
    """The second report is easy in both traces, so its release is that of the first report."""
    logs = []
    for second in (HERE, (60.1743, 24.9512)):
        draws = FixedDraws([[0.5, 0.7, 0.7, 0.3], [1e-6, 0.5, 0.5, 0.5]])
        app = App(MECHANISM.session(draws=draws), poi.url)
        poi.log.clear()
        with app.http:
            app.nearby(HERE, NOON)
            app.nearby(second, NOON + timedelta(minutes=10))
        assert app.session.run.easy[0] == 1
        logs.append(list(poi.log))
    assert logs[0] == logs[1]
    assert len(logs[0]) == 2


def test_two_true_places_with_the_same_noisy_release_make_the_same_query(poi: PoiServer) -> None:
    """From one place noise goes south, from the other, as far beyond, it goes north."""
    logs, places = [], []
    true = HERE
    for bearing in (0.5, 1e-15):
        app = App(MECHANISM.session(draws=FixedDraws([0.5, 0.3, 0.3, bearing])), poi.url)
        poi.log.clear()
        with app.http:
            app.nearby(true, NOON)
        logs.append(list(poi.log))
        released = app.session.run.value[0].tolist()
        places.append(true)
        true = (2.0 * released[0] - true[0], true[1])
    assert float(hereish.Sphere().distance(*places)) > 500.0  # type: ignore[arg-type]  # any points
    assert logs[0] == logs[1]


def incomplete(poi: PoiServer, users: int, reports: int, radius_m: float | None) -> int:
    """How many answers lack something that is near a user who walks through the city."""
    chance = np.random.default_rng(5)
    missing = 0
    for user in range(users):
        place = np.array(CENTRE) + chance.normal(scale=(0.01, 0.02))
        app = App(MECHANISM.session(seed=1000 + user), poi.url, radius_m)
        with app.http:
            for number in range(reports):
                place = place + chance.normal(scale=(0.002, 0.004))
                lat, lon = place.tolist()
                found = app.nearby((lat, lon), NOON + timedelta(minutes=10 * number))
                missing += len(found) < len(poi.within(lat, lon, R_M))
    return missing


def test_answers_are_complete_as_often_as_promised(poi: PoiServer) -> None:
    """n = 150 reports with one seed a user; not to enlarge the query is rejected by the same."""
    missing = incomplete(poi, users=50, reports=3, radius_m=None)
    assert binom.sf(missing - 1, 150, 1.0 - DELTA) >= ALPHA
    control = incomplete(poi, users=50, reports=3, radius_m=R_M)
    assert binom.sf(control - 1, 150, 1.0 - DELTA) < ALPHA
