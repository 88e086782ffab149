"""All attacks on one person, on roads, and the studies."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import hereish
from hereish import synthetic
from hereish.attack.findings import AttackOptions, attack, truth_at
from hereish.attack.lattice import Frame, Grid, distance_m, region
from hereish.attack.night_study import best_rows, made_up, mechanisms, study, table
from hereish.attack.observations import from_noise
from hereish.attack.routes import match_to_roads
from hereish.attack.smoothing import smooth
from hereish.attack.summary import summary_rows
from hereish.core.types import Floats
from hereish.roads.building import graph_from_lines
from tests.support.courses import CENTRES, streets
from tests.support.observed import PRIVACY, WINDOW, observed, people

FRAME = Frame(60.17, 24.94)


def test_a_clean_trace_is_known_all_over() -> None:
    at_s, places = people(1, 5)
    found = attack(
        from_noise(at_s, places[0], 0.5), AttackOptions(synthetic.TIME_ZONE), truth=places[0]
    )
    assert found.error_m is not None
    assert np.median(found.error_m) < 10.0
    assert found.home is not None
    assert found.home.error_m is not None
    assert found.home.error_m < 60.0
    assert found.places_found == 1.0
    assert ("home: found within 50 / 200 / 500 m") in dict(summary_rows([found]))


def test_the_observer_is_no_worse_than_the_service() -> None:
    at_s, places = people(1, 7)
    seen = observed(hereish.whole_day(PRIVACY, window=WINDOW), at_s, places[0])
    found = attack(seen, AttackOptions(synthetic.TIME_ZONE), truth=places[0])
    assert found.error_m is not None
    assert found.service_error_m is not None
    assert found.error_m.mean() < 1.1 * found.service_error_m.mean()


def test_a_fix_says_for_an_hour_where_somebody_is() -> None:
    trace = (np.array([0.0, 100.0]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    there = truth_at(trace, np.array([-1.0, 0.0, 99.0, 100.0, 3700.0, 3701.0]))
    assert there[1:5, 0].tolist() == [1.0, 1.0, 3.0, 3.0]
    assert np.isnan(there[[0, 5]]).all()


def test_who_is_on_a_road_is_found_on_it() -> None:
    """A road to the east: roads take the error across it away."""
    line = FRAME.to_degrees(np.stack([np.linspace(-8000.0, 8000.0, 161), np.zeros(161)], axis=1))
    roads = graph_from_lines([[tuple(point) for point in line.tolist()]], name="a road")
    rng = np.random.default_rng(3)
    truth = line[np.repeat(np.arange(30, 130, 10), 3)]
    at_s: Floats = np.arange(float(len(truth))) * 1800.0
    radius, angle = rng.gamma(2.0, 500.0, len(truth)), rng.uniform(0, 2 * math.pi, len(truth))
    noise = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    seen = from_noise(at_s, FRAME.to_degrees(FRAME.to_metres(truth) + noise), 1 / 500.0)
    smoothed = smooth(seen)
    errors = [
        np.hypot(*(FRAME.to_metres(track) - FRAME.to_metres(truth)).T).mean()
        for track in (smoothed.mean(), match_to_roads(smoothed, roads))
    ]
    assert errors[1] < 0.9 * errors[0]
    assert np.abs(FRAME.to_metres(match_to_roads(smoothed, roads))[:, 1]).max() < 1.0


def drive(seed: int, noise_m: float, count: int = 60) -> tuple[Floats, Floats, Floats]:
    """Times, places and releases of a drive through `courses.streets`, every ten seconds."""
    rng, every_s, block_m = np.random.default_rng(seed), 10.0, 300.0
    at, heading, left_m, path = np.zeros(2), np.array([1.0, 0.0]), block_m, []
    for _ in range(count):
        path.append(at.copy())
        to_go_m = 10.0 * every_s
        while to_go_m > 0.0:
            step_m = min(to_go_m, left_m)
            at, to_go_m, left_m = at + heading * step_m, to_go_m - step_m, left_m - step_m
            if left_m <= 1e-9:
                left_m = block_m
                if rng.random() < 0.4:
                    heading = np.array([-heading[1], heading[0]]) * rng.choice([-1.0, 1.0])
    radius, angle = rng.gamma(2.0, noise_m, count), rng.uniform(0.0, 2.0 * math.pi, count)
    noise = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    frame, truth = Frame(*CENTRES[0]), np.array(path)
    at_s: Floats = 1.7e9 + every_s * np.arange(float(count))
    return at_s, frame.to_degrees(truth), frame.to_degrees(truth + noise)


def errors_m(noise_m: float, roads: bool) -> Floats:
    """Of what is released, of the observer, and on the roads: means over four drives."""
    found = []
    for seed in range(4):
        at_s, truth, seen = drive(seed, noise_m)
        smoothed = smooth(from_noise(at_s, seen, 1.0 / noise_m))
        tracks = [seen, smoothed.mean()]
        tracks += [match_to_roads(smoothed, streets())] if roads else []
        found.append([distance_m(track, truth).mean() for track in tracks])
    return np.asarray(np.mean(found, axis=0))


def test_a_driver_is_taken_for_one() -> None:
    """Who moves like people at places do would be 30 m further off than the releases are."""
    released, observer = errors_m(50.0, roads=False)
    assert observer < 0.85 * released


def test_a_route_is_matched_to_the_roads() -> None:
    pytest.importorskip("leuvenmapmatching", reason="pip install 'hereish[roads]'")
    for noise_m in (30.0, 50.0):
        _, observer, on_roads = errors_m(noise_m, roads=True)
        assert on_roads < 0.95 * observer


def test_without_the_library_a_route_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "leuvenmapmatching.map.inmem", None)
    at_s, _, seen = drive(1, 20.0)
    with pytest.raises(hereish.ParameterError, match=r"hereish\[roads\]"):
        match_to_roads(smooth(from_noise(at_s, seen, 0.05)), streets())


def test_roads_of_another_town_move_nobody() -> None:
    at_s, places = people(1, 1)
    smoothed = smooth(observed(hereish.whole_day(PRIVACY, window=WINDOW), at_s, places[0]))
    line = FRAME.to_degrees(np.stack([np.linspace(20e3, 30e3, 41), np.zeros(41)], axis=1))
    far = graph_from_lines([[tuple(point) for point in line.tolist()]], name="far")
    assert distance_m(match_to_roads(smoothed, far), smoothed.mean()).max() < 1e-3


def test_a_study_of_nights_has_a_row_for_each_number_of_them() -> None:
    crowd = made_up(1, days=28)
    compared = mechanisms(crowd.time_zone)
    some = {name: compared[name] for name in ("the paper, 3 km",)}
    rows = study(crowd, some)
    assert [row["nights"] for row in best_rows(rows)] == [1, 7, 28]
    assert "the paper, 3 km" in table(rows)


def test_regions_hold_the_fewest_cells() -> None:
    mass = np.array([[0.5, 0.2], [0.2, 0.1]])
    assert region(mass, 0.5).sum() == 1
    assert region(mass, 0.9).sum() == 3


@pytest.mark.parametrize("lon", [179.99, -179.99])
def test_a_map_goes_across_the_antimeridian(lon: float) -> None:
    frame = Frame.around(np.array([[10.0, lon], [10.0, -lon], [10.0, lon]]))
    metres = frame.to_metres(np.array([[10.0, lon], [10.0, -lon]]))
    assert abs(metres[0, 0] - metres[1, 0]) == pytest.approx(2190.0, rel=0.01)
    grid = Grid.covering(frame, metres, 1000.0, 64)
    near = grid.distances_m(np.array([10.0, -lon]))
    row, column = np.unravel_index(int(near.argmin()), near.shape)
    assert near.min() < grid.step_m
    assert abs(abs(grid.middle_of(int(row), int(column))[1]) - 180.0) < 0.02
