"""RoadPrediction: along the road, round its bends, and at rest where nothing is known."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import ParameterError, PredictiveMechanism, Privacy, Run, Sphere, sanitize
from hereish.core.fingerprint import fingerprint
from hereish.core.types import Floats
from hereish.roads import RoadGraph, RoadNetwork, RoadPrediction, graph_from_lines
from tests.roads.test_lemma1_on_roads import TOLERANCE, apart_m, steady
from tests.support.exact_road_runs import road_losses
from tests.support.towns import blocks, metres, village

SPHERE = Sphere()
PACE = 0.8


@cache
def bent_road() -> RoadGraph:
    """2 km to the east, then 2 km to the north; a side road at the bend goes on to the east."""
    main = [(0.0, 0.0), (0.0, 2000.0), (2000.0, 2000.0)]
    side = [(0.0, 2000.0), (-30.0, 2600.0)]
    return graph_from_lines([metres(np.array(line)) for line in (main, side)], name="bend")


def history(*places_m: tuple[float, float], every_s: float = 60.0) -> Run:
    """A run whose last releases were at these places, the newest last, one lane."""
    run = Run.empty(1, 2, 3)
    values, times = run.values.copy(), run.times_s.copy()
    for i, place in enumerate(reversed(places_m)):
        values[0, i], times[0, i] = metres(np.array(place)), 1000.0 - every_s * i
    return run._replace(values=values, times_s=times)


def guess_of(prediction: RoadPrediction, run: Run, after_s: float = 60.0) -> Floats:
    """The guess in metres north and east."""
    guess = prediction(run, run.at_s + after_s)
    return np.asarray(
        (guess[0] - metres(np.zeros(2))) * (metres(np.ones(2)) - metres(np.zeros(2)))[0] ** -1
    )


def predicting(graph: RoadGraph, **settings: Any) -> RoadPrediction:
    return RoadPrediction(graph, **({"still_m": 100.0, "pace": PACE} | settings))


def test_it_goes_on_along_the_road_at_the_pace_of_the_releases() -> None:
    run = history((10.0, 300.0), (-12.0, 600.0), (8.0, 900.0))
    north, east = guess_of(predicting(bent_road()), run)
    assert abs(north) < 1.0, "on the road, and not beside it"
    assert east == pytest.approx(900.0 + PACE * 300.0, abs=30.0)


def test_it_follows_a_bend_and_a_straight_line_does_not() -> None:
    road = bent_road()
    after = graph_from_lines([metres(np.array([(0.0, 0.0), (0.0, 2000.0), (2000.0, 2000.0)]))],
                             name="no side road")  # fmt: skip
    run = history((0.0, 1100.0), (0.0, 1500.0), (0.0, 1900.0))
    north, east = guess_of(predicting(after), run)
    assert (north, east) == pytest.approx((PACE * 400.0 - 100.0, 2000.0), abs=30.0)
    north, east = guess_of(predicting(road), run)
    assert east > 2150.0, "at a crossing it goes straight on"
    assert abs(north) < 30.0


def test_at_crossings_it_turns_to_where_it_is_pointed() -> None:
    goal = metres(np.array([[900.0, 2000.0]]))
    run = history((0.0, 1100.0), (0.0, 1500.0), (0.0, 1900.0))
    there = predicting(bent_road(), towards=lambda run, at_s: np.repeat(goal, len(at_s), axis=0))
    north, east = guess_of(there, run)
    assert (north, east) == pytest.approx((PACE * 400.0 - 100.0, 2000.0), abs=30.0)
    north, east = guess_of(there, run, after_s=200.0)
    assert north == pytest.approx(900.0, abs=60.0), "it stops at its goal"
    nowhere = predicting(bent_road(), towards=lambda run, at_s: np.full((len(at_s), 2), np.nan))
    assert guess_of(nowhere, run)[1] > 2150.0


def test_a_road_ends_where_it_ends() -> None:
    run = history((200.0, 2000.0), (900.0, 2000.0), (1600.0, 2000.0))
    north, east = guess_of(predicting(bent_road()), run)
    assert (north, east) == pytest.approx((2000.0, 2000.0), abs=1.0)


@pytest.mark.parametrize(
    ("run", "after_s"),
    [
        (history(), 60.0),
        (history((0.0, 900.0)), 60.0),
        (history((0.0, 850.0), (0.0, 900.0), (20.0, 880.0)), 60.0),  # still
        (history((0.0, 300.0), (0.0, 600.0), (0.0, 900.0)), 3600.0),  # after a silence
        (history((0.0, 300.0), (0.0, 600.0), (0.0, 900.0), every_s=3600.0), 60.0),  # long ago
        (history((9e4, 300.0), (9e4, 600.0), (9e4, 900.0)), 60.0),  # off the map
    ],
)
def test_where_nothing_is_known_the_last_release_is_repeated(run: Run, after_s: float) -> None:
    guess = predicting(bent_road())(run, run.at_s + after_s)
    assert np.array_equal(guess, run.value, equal_nan=True)


def test_nobody_is_expected_to_be_faster_than_the_limit() -> None:
    run = history((0.0, 0.0), (0.0, 500.0), (0.0, 1000.0), every_s=1.0)
    _, east = guess_of(predicting(bent_road(), fastest_kmh=36.0), run, after_s=20.0)
    assert east == pytest.approx(1000.0 + PACE * 10.0 * 20.0, abs=30.0)


def test_roads_across_the_antimeridian_are_followed() -> None:
    lon = np.array([179.97, 179.99, -179.99, -179.97])
    graph = graph_from_lines([np.column_stack([np.full(4, 10.0), lon])], name="date line")
    run = history((0.0, 0.0), (0.0, 0.0), (0.0, 0.0))
    values = run.values.copy()
    values[0] = [(10.0, 179.998), (10.0, 179.993), (10.0, 179.988)]
    run = run._replace(values=values)
    guess = predicting(graph)(run, run.at_s + 60.0)[0]
    assert guess[0] == pytest.approx(10.0, abs=1e-4)
    assert guess[1] == pytest.approx(-180.0 + 0.002, abs=5e-4)


def driving(lanes: int, steps: int, seed: int) -> tuple[Floats, Floats, list[int]]:
    """People who drive along streets, turn at corners at times, and stand still at others."""
    rng = np.random.default_rng(seed)
    points, at_s = [], []
    for _ in range(lanes):
        here, heading = rng.integers(2, 10, 2) * 100.0, rng.integers(0, 4)
        for i in range(steps):
            points.append(here.copy())
            at_s.append(60.0 * i)
            if rng.random() < 0.2:
                heading = rng.integers(0, 4)
            if rng.random() < 0.8:
                off = [(200.0, 0.0), (0.0, 200.0), (-200.0, 0.0), (0.0, -200.0)][heading]
                here = np.clip(here + off, 0.0, 1200.0)
    return metres(np.array(points)), np.array(at_s), [steps * i for i in range(lanes + 1)]


@pytest.mark.parametrize("towards", [False, True])
def test_live_and_batch_and_pieces_give_the_same_bits(towards: bool) -> None:
    goal = metres(np.array([600.0, 600.0]))
    settings = {"towards": lambda run, at_s: np.tile(goal, (len(at_s), 1))} if towards else {}
    prediction = predicting(blocks(13), **settings)
    m = hereish.fixed_utility(Privacy(1e3, 1.0), 100.0, prediction=prediction)
    x, at_s, offsets = driving(6, 12, 1)
    u = np.random.default_rng(2).uniform(1e-9, 1.0, (len(x), m.uniforms))
    out = sanitize(m, x, at_s, offsets, uniforms=u)
    assert 0.2 < out.hard.mean() < 1.0
    for lane in range(6):
        rows = slice(offsets[lane], offsets[lane + 1])
        alone = sanitize(m, x[rows], at_s[rows], [0, 12], uniforms=u[rows])
        assert alone.value.tobytes() == out.value[rows].tobytes()
    first = np.concatenate([np.arange(o, o + 5) for o in offsets[:-1]])
    rest = np.concatenate([np.arange(o + 5, o + 12) for o in offsets[:-1]])
    begun = sanitize(m, x[first], at_s[first], np.arange(0, 31, 5), uniforms=u[first], run=m.run(6))
    ended = sanitize(m, x[rest], at_s[rest], np.arange(0, 43, 7), uniforms=u[rest], run=begun.run)
    assert ended.value.tobytes() == out.value[rest].tobytes()
    session = m.session(seed=1)
    for point, at in zip(x[:6], at_s[:6], strict=True):
        session.report(tuple(point), datetime.fromtimestamp(float(at), UTC))
    if not towards:  # a function without a name cannot be told from another of another process
        restored = hereish.Session.from_state(m, session.to_state(), seed=1)
        assert np.array_equal(restored.run.values, session.run.values)


def test_guesses_are_a_function_of_what_was_released() -> None:
    """Other secrets, same releases: same guesses. It keeps nothing between calls."""
    prediction = predicting(blocks(13))
    run = history((200.0, 100.0), (200.0, 300.0), (200.0, 500.0))
    first = prediction(run, run.at_s + 60.0)
    prediction(history((500.0, 900.0), (500.0, 600.0), (500.0, 300.0)), run.at_s + 60.0)
    assert np.array_equal(prediction(run, run.at_s + 60.0), first)
    assert vars(prediction).keys() <= {
        *("graph", "still_m", "pace", "horizon_s", "fastest_kmh", "towards")
    }


def winding(along_m: Floats) -> Floats:
    """Places so far along a road that winds its way to the east."""
    turn = along_m / 350.0
    return np.column_stack([600.0 * np.sin(turn), 0.6 * along_m])


def test_on_a_winding_road_it_beats_a_parrot_and_a_straight_line() -> None:
    """40 people at some 6 to 12 m/s, a report every 30 s, and reports within 150 m."""
    graph = graph_from_lines([metres(winding(np.arange(0.0, 3e4, 20.0)))], name="winding")
    rng = np.random.default_rng(5)
    speed, start = rng.uniform(5.0, 10.0, 40), rng.uniform(0.0, 5e3, 40)
    at_s = np.tile(30.0 * np.arange(40), 40)
    along = np.repeat(start, 40) + np.repeat(speed, 40) * at_s
    x, offsets = metres(winding(along)), np.arange(0, 1601, 40)

    def straight_on(run: Run, at_s: Floats) -> Floats:
        newest, before = run.values[:, 0], run.values[:, 2]
        return np.where(np.isnan(before), newest, newest + (newest - before) / 2.0)

    easy = {}
    for name, prediction in {
        "parrot": None,
        "line": hereish.prediction(straight_on, memory=3),
        "roads": predicting(graph, pace=1.0),
    }.items():
        m = hereish.fixed_utility(Privacy(1e3, 1.0), 150.0, prediction=prediction)
        easy[name] = 1.0 - sanitize(m, x, at_s, offsets, seed=4).hard.mean()
    assert easy["roads"] > 1.5 * easy["line"]
    assert easy["roads"] > 1.5 * easy["parrot"]


def test_lemma_1_holds_with_it_on_every_run() -> None:
    m = PredictiveMechanism(
        Privacy(30.0, 1.0), steady, RoadNetwork(village()), predicting(village(), still_m=50.0)
    )
    apart = RoadNetwork.claim_factor * apart_m(village())
    excess, _ = road_losses(m, apart, [0.0, 60.0])
    assert excess <= TOLERANCE


def test_it_is_known_by_its_network_and_survives_pickling() -> None:
    one, other = predicting(bent_road()), predicting(blocks(13))
    one(history((0.0, 300.0), (0.0, 600.0), (0.0, 900.0)), np.array([1060.0]))
    assert fingerprint(one) == fingerprint(predicting(bent_road())) != fingerprint(other)
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301  # our own bytes
    with pytest.raises(AttributeError):
        one.pace = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"graph": "roads"}, r"graph must be a hereish\.roads\.RoadGraph"),
        ({"still_m": 0.0}, "still_m must be"),
        ({"pace": math.nan}, "pace must be"),
        ({"towards": 3}, "towards must be a function"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        RoadPrediction(**({"graph": bent_road()} | settings))
