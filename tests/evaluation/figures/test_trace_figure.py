"""The figure of one trace: of its input, chosen by rule, and without places in its repr."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Wedge

from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Floats
from hereish.evaluation import dataset
from hereish.evaluation.figures import trace_figure
from hereish.evaluation.figures.files import draw_trace
from hereish.evaluation.figures.trace_figure import TraceView, choose_trace
from hereish.evaluation.study_settings import StudySettings
from tests.support.study_figures import png_size, texts


@pytest.fixture(scope="module")
def city() -> tuple[dataset.Trajectories, Bools]:
    return dataset.select_on_foot(dataset.synthetic(60))


def chosen(trajectories: dataset.Trajectories, slow: Bools, seed: int = 1) -> TraceView:
    view = choose_trace(trajectories, slow, seed, StudySettings())
    assert view is not None
    return view


def test_the_trace_that_is_chosen_is_instructive(city: tuple[dataset.Trajectories, Bools]) -> None:
    trace = chosen(*city)
    assert trace_figure.FEWEST <= len(trace.releases.kind) <= trace_figure.MOST
    assert trace.releases.kind[0] == "hard"
    kinds, counts = np.unique(trace.releases.kind, return_counts=True)
    assert dict(zip(kinds.tolist(), counts.tolist(), strict=True))["hard"] >= 2
    assert "easy" in kinds or "untested" in kinds
    assert np.ptp(trace.releases.true_km, axis=0).max() >= 3.0
    assert (np.diff(trace.query_h) > 0.0).all()


def own_points(trace: TraceView, given: dataset.Trajectories) -> Floats:
    """The fixes of the trajectory that was chosen: those with the same steps."""
    found = []
    for points in np.split(given.points, given.offsets[1:-1]):
        north_km = (points[:, 0] - points[0, 0]) * np.radians(6371.0088)
        if len(points) == len(trace.path_km) and np.allclose(north_km, trace.path_km[:, 1]):
            found.append(points)
    assert len(found) == 1
    return np.asarray(found[0])


def test_a_trace_is_of_its_input_and_nothing_else(city: tuple[dataset.Trajectories, Bools]) -> None:
    given, slow = city
    trace = chosen(given, slow)
    steps_m = np.hypot(*np.diff(trace.path_km, axis=0).T) * 1000.0
    points = own_points(trace, given)
    true_m = Sphere().distance(points[1:], points[:-1])
    np.testing.assert_allclose(steps_m, true_m, rtol=1e-2, atol=0.01)  # flat is nearly round
    apart = np.abs(trace.releases.true_km[:, None] - trace.path_km[None]).max(axis=2).min(axis=1)
    assert apart.max() == 0.0  # queries are fixes
    again = np.flatnonzero(trace.releases.kind != "hard")
    np.testing.assert_array_equal(
        trace.releases.released_km[again], trace.releases.released_km[again - 1]
    )


def test_a_trace_across_the_date_line_is_the_same(city: tuple[dataset.Trajectories, Bools]) -> None:
    given, slow = city
    here = chosen(given, slow)
    own = own_points(here, given)
    middle = (own[:, 1].min() + own[:, 1].max()) / 2.0
    east = given.points + np.array([0.0, 180.0 - middle])
    east[:, 1] = (east[:, 1] + 180.0) % 360.0 - 180.0
    there = chosen(replace(given, points=east), slow)
    np.testing.assert_allclose(there.path_km, here.path_km, atol=1e-6)
    np.testing.assert_allclose(there.releases.true_km, here.releases.true_km, atol=1e-6)


def of_label(axes: Axes, label: str) -> list[Floats]:
    return [np.asarray(li.get_xydata()) for li in axes.get_lines() if li.get_label() == label]


def test_the_picture_shows_the_trace(city: tuple[dataset.Trajectories, Bools]) -> None:
    trace = chosen(*city)
    figure = trace_figure.draw_view(trace)
    shown = figure.axes[0]
    path = np.concatenate(of_label(shown, "path"))
    np.testing.assert_array_equal(path, trace.path_km)
    assert len(of_label(shown, "silent")) == np.count_nonzero(trace.silent)
    ties = np.stack(of_label(shown, "tie"))
    np.testing.assert_array_equal(
        ties, np.stack([trace.releases.true_km, trace.releases.released_km], axis=1)
    )
    slices = [patch for patch in shown.patches if isinstance(patch, Wedge)]
    assert sorted(str(s.get_label()) for s in slices) == sorted(trace.releases.kind.tolist())
    numbers = [int(text.get_text()) for text in shown.texts if text.get_text().isdigit()]
    assert sum(numbers) == len(trace.releases.kind)
    assert len(numbers) == np.count_nonzero(trace.releases.kind == "hard")
    assert shown.get_aspect() == 1.0
    (bar,) = of_label(shown, "scale")
    assert f"{np.ptp(bar[:, 0]):g} km" in texts(figure)
    assert trace_figure.WARNING in texts(figure)
    errors = {
        str(dots.get_label()): np.asarray(dots.get_offsets()) for dots in figure.axes[2].collections
    }
    true_km = np.hypot(*(trace.releases.released_km - trace.releases.true_km).T)
    for kind, dots in errors.items():
        np.testing.assert_allclose(dots[:, 1], true_km[trace.releases.kind == kind])


def test_larger_rings_answered_more(city: tuple[dataset.Trajectories, Bools]) -> None:
    trace = chosen(*city)
    figure = trace_figure.draw_view(trace)
    rings: dict[tuple[float, float], tuple[int, float]] = {}
    for patch in figure.axes[0].patches:
        if isinstance(patch, Wedge):
            number, _ = rings.get(patch.center, (0, 0.0))
            rings[patch.center] = number + 1, patch.r
    numbers, sizes = zip(*sorted(set(rings.values())), strict=True)
    assert len(set(numbers)) == len(numbers) > 1  # the same size for the same number
    assert (np.diff(sizes) > 0.0).all()


def test_the_trace_is_a_file_and_the_same_each_time(
    city: tuple[dataset.Trajectories, Bools], tmp_path: Path
) -> None:
    paths = [tmp_path / f"{name}.png" for name in ("true-trace", "again")]
    assert all(draw_trace(*city, path, 1, StudySettings()) for path in paths)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert png_size(paths[0]) == (1800, 1110)
    assert len(list(tmp_path.iterdir())) == 2


def test_without_an_instructive_trace_there_is_no_picture(
    city: tuple[dataset.Trajectories, Bools], tmp_path: Path
) -> None:
    given, slow = city
    still = replace(given, points=np.broadcast_to(given.points[0], given.points.shape))
    nobody = given.take(np.zeros(len(given), dtype=np.bool_))
    assert not draw_trace(still, slow, tmp_path / "true-trace.png", 1, StudySettings())
    assert not draw_trace(nobody, slow[:0], tmp_path / "true-trace.png", 1, StudySettings())
    assert not list(tmp_path.iterdir())


def test_a_trace_does_not_show_places_in_words(city: tuple[dataset.Trajectories, Bools]) -> None:
    trace = chosen(*city, -5)
    assert repr(trace) == f"<TraceView of {len(trace.releases.kind)} queries>"
