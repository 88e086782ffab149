from __future__ import annotations

import inspect
import math
from dataclasses import FrozenInstanceError, dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyproj import Geod

import hereish
from hereish import lbs
from hereish.testing import FixedDraws

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
HERE = (60.1699123, 24.9384567)
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
SPHERE = hereish.Sphere()
FACTOR = SPHERE.claim_factor
HARD = hereish.Report((60.18, 24.95), hereish.Kind("hard"), 0.003, NOON, "all", 0.001, 0.002, 900.0)
FRESH = replace(HARD, eps_test=0.0, threshold=-math.inf)
EASY = replace(HARD, kind=hereish.Kind("easy"))
UNTESTED = replace(
    HARD, kind=hereish.Kind("untested"), eps_test=0.0, eps_noise=0.0, threshold=math.inf
)


def known(radius_m: float | None) -> float:
    assert radius_m is not None
    return radius_m


def test_reports_of_a_session_say_what_was_planned() -> None:
    m = hereish.fixed_utility(PRIVACY, 3000, skip=hereish.SkipBySpeed(kmh=30))
    draws = FixedDraws([[0.5, 0.9, 0.9, 0.5], [0.5] * 4, [0.01, 0.5, 0.5, 0.5], [1 - 1e-9] * 4])
    session = m.session(draws=draws)
    first, skipped, easy = (session.report(HERE, NOON + timedelta(minutes=i)) for i in (0, 5, 7))
    hard = session.report(HERE, NOON + timedelta(minutes=60))
    assert [r.kind for r in (first, skipped, easy, hard)] == ["hard", "untested", "easy", "hard"]
    assert (first.eps_test, first.eps_noise, first.threshold) == (0.0, first.cost, -math.inf)
    assert (skipped.eps_test, skipped.eps_noise, skipped.threshold) == (0.0, 0.0, math.inf)
    assert easy.eps_test == easy.cost > 0.0
    assert easy.threshold == pytest.approx(3000 / 0.5 / 1.8), "accuracy over eta, and gamma"
    assert (hard.eps_test, hard.eps_noise, hard.threshold) == (
        easy.eps_test,
        first.eps_noise,
        easy.threshold,
    )
    assert hard.cost == hard.eps_test + hard.eps_noise
    assert [lbs.reach(r, r_m=500) is None for r in (first, skipped, easy, hard)] == [
        *(False, True, False, False)
    ]


def test_a_report_made_the_old_way_has_no_plan_and_no_promise() -> None:
    old = hereish.Report((60.18, 24.95), hereish.Kind.EASY, 0.003, NOON, "all")
    assert (old.eps_test, old.eps_noise, old.threshold) == (0.0, 0.0, math.inf)
    assert lbs.query(old, r_m=500) is None


def test_the_radii_are_those_of_proposition_1_and_what_a_sphere_adds() -> None:
    noise_m = 3.889720 / 0.002
    assert known(lbs.accuracy_m(HARD, delta=0.9)) == pytest.approx(noise_m / FACTOR**2, abs=3)
    assert known(lbs.accuracy_m(HARD, delta=0.9)) > noise_m / FACTOR**2 + 0.8, "and rounding"
    test_m = math.log(5) / 0.001
    expected = (900.0 + test_m / FACTOR) / FACTOR
    assert known(lbs.accuracy_m(EASY, delta=0.9)) == pytest.approx(expected)
    assert lbs.accuracy_m(UNTESTED, delta=0.9) is None


def test_a_promise_about_the_whole_report_takes_the_root_of_delta_where_a_test_was_made() -> None:
    for report, share in ((HARD, 0.9), (EASY, 0.9), (FRESH, 0.81)):
        expected = known(lbs.accuracy_m(report, delta=share)) + 500.0 / FACTOR
        assert known(lbs.reach(report, r_m=500, delta=0.81)) == pytest.approx(expected)


def test_the_radius_grows_with_all_that_asks_for_more() -> None:
    for report in (HARD, EASY, FRESH):
        radius_m = known(lbs.reach(report, r_m=500, delta=0.9))
        assert known(lbs.reach(report, r_m=501, delta=0.9)) > radius_m + 1.0
        assert known(lbs.reach(report, r_m=500, delta=0.95)) > radius_m
        cheaper = replace(report, eps_test=report.eps_test / 2, eps_noise=report.eps_noise / 2)
        assert known(lbs.reach(cheaper, r_m=500, delta=0.9)) > radius_m
    assert lbs.reach(HARD, r_m=500, space=hereish.Sphere(decimals=2)) > known(  # type: ignore[operator]  # not None
        lbs.reach(HARD, r_m=500)
    )


@pytest.mark.parametrize("place", [(0.0, 10.0), (45.0, -70.0), (89.5, 100.0)])
def test_one_factor_covers_every_mixture_of_metres(place: tuple[float, float]) -> None:
    """Whether user and service measure geodesics or great circles: sides of triangles, outwards."""
    wgs84 = Geod(ellps="WGS84")
    away_m, r_m = 3000.0, 500.0
    for bearing in range(0, 360, 15):
        for scale in np.linspace(0.99, 1.01, 9):
            lon, lat, _ = wgs84.fwd(place[1], place[0], bearing, away_m * scale)
            for turn in (0, 180):
                far_lon, far_lat, _ = wgs84.fwd(lon, lat, bearing + turn, r_m * scale)
                to_user = _both(wgs84, place, (lat, lon))
                to_poi = _both(wgs84, (lat, lon), (far_lat, far_lon))
                if to_user["circle"] <= away_m and min(to_poi.values()) <= r_m:
                    seen = _both(wgs84, place, (far_lat, far_lon))
                    assert max(seen.values()) <= away_m / FACTOR + r_m / FACTOR


def _both(wgs84: Geod, a: tuple[float, float], b: tuple[float, float]) -> dict[str, float]:
    geodesic = wgs84.inv(a[1], a[0], b[1], b[0])[2]
    return {"geodesic": geodesic, "circle": float(SPHERE.distance(a, b))}  # type: ignore[arg-type]  # any points


def test_rounding_moves_no_release_further_than_a_step_not_even_at_the_pole() -> None:
    chance = np.random.default_rng(1)
    for decimals in (2, 5):
        step_m = 10.0**-decimals * lbs._LONGEST_DEGREE_M
        colatitude = 10.0 ** chance.uniform(-decimals - 1, 1.9, 20_000)
        points = np.stack([90.0 - colatitude, chance.uniform(-180, 180, 20_000)], axis=1)
        moved_m = SPHERE.distance(points, hereish.Sphere(decimals).snap(points))
        assert 0.5 * step_m < moved_m.max() < step_m


def test_a_query_is_made_of_the_release_and_rounded_up() -> None:
    asked = lbs.query(HARD, r_m=500, delta=0.9)
    assert asked is not None
    assert (asked.lat, asked.lon) == HARD.value
    radius_m = known(lbs.reach(HARD, r_m=500, delta=0.9))
    assert isinstance(asked.radius_m, int)
    assert radius_m <= asked.radius_m < radius_m + 1.0
    with pytest.raises(FrozenInstanceError):
        asked.lat = 0.0  # type: ignore[misc]
    assert lbs.query(UNTESTED, r_m=500) is None


def test_nothing_that_makes_a_query_has_room_for_a_true_place() -> None:
    for function in (lbs.query, lbs.reach, lbs.accuracy_m):
        parameters = inspect.signature(function).parameters
        assert set(parameters) <= {"report", "r_m", "delta", "space", "test"}
        positional = [p.name for p in parameters.values() if p.kind is not p.KEYWORD_ONLY]
        assert positional == ["report"]


@pytest.mark.parametrize("wrong", [HERE, np.array(HERE), {"kind": "hard"}, "60.1699123", None])
def test_a_true_place_in_the_report_s_stead_is_refused_and_not_repeated(wrong: Any) -> None:
    for function in (lbs.query, lbs.reach):
        with pytest.raises(hereish.ParameterError) as refused:
            function(wrong, r_m=500)
        assert "60.16" not in str(refused.value)
    with pytest.raises(hereish.ParameterError) as refused:
        lbs.query(HARD, r_m=wrong)
    assert "60.16" not in str(refused.value)


@pytest.mark.parametrize("delta", [0.0, 0.5, 1.0, 0.9999999, -1.0, math.nan, "0.9"])
def test_a_promise_that_cannot_be_kept_is_refused(delta: Any) -> None:
    for function in (lbs.query, lbs.reach):
        with pytest.raises(hereish.ParameterError, match="delta must be above"):
            function(HARD, r_m=500, delta=delta)
    with pytest.raises(hereish.ParameterError, match="delta must be above"):
        lbs.accuracy_m(HARD, delta=delta)


def test_the_largest_delta_works_for_every_kind() -> None:
    for report in (HARD, EASY, FRESH):
        assert known(lbs.reach(report, r_m=500, delta=0.999999)) < 20_000.0


@pytest.mark.parametrize("r_m", [0.0, -1.0, math.nan, math.inf])
def test_r_must_be_a_distance(r_m: float) -> None:
    with pytest.raises(hereish.ParameterError, match="r_m must be"):
        lbs.query(HARD, r_m=r_m)
    with pytest.raises(hereish.ParameterError, match="r_m must be"):
        lbs.nearby([], HERE, r_m=r_m)


def test_reports_of_other_spaces_are_refused() -> None:
    for value in (230.5, (230.5, 17.0), None, "here"):
        with pytest.raises(hereish.ParameterError, match="reports of a Sphere"):
            lbs.query(replace(HARD, value=value), r_m=500)
    with pytest.raises(hereish.ParameterError, match=r"hereish\.Sphere, found Plane"):
        lbs.query(HARD, r_m=500, space=hereish.Plane())  # type: ignore[arg-type]


def test_the_gateway_s_names_are_understood_too() -> None:
    told = {"eps_test": 0.001, "eps_noise": 0.002, "lat": 60.18, "lon": 24.95}
    for kind, report in (("hard", HARD), ("easy", EASY)):
        same = SimpleNamespace(kind=kind, threshold_m=900.0, **told)
        assert lbs.query(same, r_m=500) == lbs.query(report, r_m=500)
    fresh = SimpleNamespace(kind="hard", threshold_m=None, **told)
    assert lbs.query(fresh, r_m=500) == lbs.query(FRESH, r_m=500)
    nothing = SimpleNamespace(kind="none", eps_test=0.0, eps_noise=0.0, threshold_m=None)
    assert lbs.query(nothing, r_m=500) is None


def test_a_test_of_your_own_brings_its_own_constant() -> None:
    class Blunt(hereish.LaplaceTest):
        def c_test(self, delta: float) -> float:
            return 2.0 * super().c_test(delta)

    usual, blunt = (known(lbs.reach(EASY, r_m=1, test=test)) for test in (None, Blunt()))
    assert blunt > usual + 1000.0


@dataclass
class Cafe:
    latitude: float
    longitude: float


def test_nearby_understands_the_usual_answers() -> None:
    at = (60.17, 24.94)
    answers: list[Any] = [
        {"type": "node", "lat": 60.17, "lon": 24.94},
        {"type": "way", "center": {"lat": 60.17, "lon": 24.94}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [24.94, 60.17, 12.0]}},
        {"lat": "60.17", "lon": "24.94", "display_name": "text for numbers"},
        {"lat": 60.17, "lng": 24.94},
        {"lat": 60.17, "lon": 24.94, "center": "downtown"},
        Cafe(60.17, 24.94),
    ]
    assert lbs.nearby(answers, at, r_m=1) == answers
    assert lbs.nearby(answers, (60.18, 24.94), r_m=1000) == []
    away: list[tuple[str, float, float]] = [("b", 60.171, 24.94), ("a", 60.17, 24.94)]
    assert [n[0] for n in lbs.nearby(away, at, r_m=200, key=lambda n: n[1:])] == ["a", "b"]
    assert lbs.nearby([], at, r_m=1) == []


def test_nearby_sorts_by_distance_across_the_antimeridian() -> None:
    places = [{"lat": 0.0, "lon": lon} for lon in (179.99, -179.999, 179.9, 0.0)]
    found = lbs.nearby(places, (0.0, -179.998), r_m=5000)
    assert [place["lon"] for place in found] == [-179.999, 179.99]
    beyond = [{"lat": 0.0, "lon": lon} for lon in (180.001, -180.003, 540.0, 541.0)]
    assert lbs.nearby(beyond[:3], (0.0, -179.999), r_m=300) == [beyond[0], beyond[2]]
    with pytest.raises(hereish.ParameterError, match=r"place 3 .* longitude is outside"):
        lbs.nearby(beyond, (0.0, -179.999), r_m=300)


def test_nearby_says_what_it_cannot_read() -> None:
    good = {"lat": 60.17, "lon": 24.94}
    for bad in (
        {"type": "way", "nodes": [1, 2]},
        {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": []}},
        {"lat": None, "lon": 1.0},
        {"center": None},
        object(),
    ):
        with pytest.raises(hereish.ParameterError, match="place 1 of the answer") as refused:
            lbs.nearby([good, bad], HERE, r_m=500)
        assert "60.16" not in str(refused.value)
    with pytest.raises(hereish.ParameterError, match=r"place 1 .* latitude is outside"):
        lbs.nearby([good, {"lat": 91.0, "lon": 0.0}], HERE, r_m=500)
    with pytest.raises(hereish.ParameterError, match="elements"):
        lbs.nearby({"elements": [good]}, HERE, r_m=500)


@pytest.mark.parametrize("place", [(91.25, 24.94), (math.nan, 1.0), (60.1699123,), "60.1", None])
def test_a_bad_true_place_is_not_repeated(place: Any) -> None:
    with pytest.raises(hereish.PointError) as refused:
        lbs.nearby([], place, r_m=500)
    assert refused.value.__context__ is None
    assert not any(digits in str(refused.value) for digits in ("91.25", "60.1", "24.94"))
