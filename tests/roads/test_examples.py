"""The programs that print the tables of docs/roads.md do so for any roads and traces."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import numpy as np
import pytest

from hereish.evaluation.dataset import Trajectories
from tests.roads.test_map_matching import driving
from tests.support.paths import ROOT
from tests.support.towns import blocks, metres


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_noise_is_measured_along_roads_and_as_the_crow_flies() -> None:
    rows = example("road_noise").measure(blocks(13), draws=100)
    assert [row.size_m for row in rows] == [100.0, 250.0, 500.0, 1000.0, 2000.0]
    for row in rows:
        assert 0.0 < row.exponential_crow_m < row.exponential_m
        assert 0.0 < row.laplace_crow_m < row.laplace_m
    assert rows[0].laplace_crow_m == pytest.approx(100.0, rel=0.3)


def test_predictions_are_tuned_on_some_users_and_scored_on_others() -> None:
    study = example("map_matching")
    points, at_s, offsets = driving(24, 30, 7)
    middle = metres(np.array([600.0, 600.0]))
    points = middle + 0.99 * (points - middle)  # not on the very edge of the map
    whole = Trajectories("made up", at_s, points, np.array(offsets), np.arange(24) // 2, 12)
    traces = study.traces_on(blocks(13), whole, 60.0)
    assert len(traces) == 24
    rows = study.compare(blocks(13), traces)
    assert [(row.accuracy_m, row.prediction) for row in rows] == [
        (accuracy, name)
        for accuracy in study.ACCURACIES_M
        for name in ("repeat", "straight line", "roads", "roads, mobility model")
    ]
    for row in rows:
        assert 0.0 <= row.accepted < 1.0
        assert 0.4 < row.cost < 1.8
        assert row.error_m < 1.5 * row.accuracy_m


def test_traces_end_at_silences_and_where_somebody_leaves_the_roads() -> None:
    study = example("map_matching")
    inside, outside = metres(np.array([500.0, 500.0])), metres(np.array([9000.0, 0.0]))
    points = np.array([inside] * 12 + [outside] * 3 + [inside] * 30)
    at_s = 30.0 * np.arange(45.0)
    at_s[30:] += 1000.0
    whole = Trajectories("made up", at_s, points, np.array([0, 45]), np.array([0]), 1)
    traces = study.traces_on(blocks(13), whole, 30.0)
    assert np.diff(traces.offsets).tolist() == [12, 15, 15]
    thinned = study.traces_on(blocks(13), whole, 60.0)
    assert not len(thinned), "less than ten fixes are left of each"
