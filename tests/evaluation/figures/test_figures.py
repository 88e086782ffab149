from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Wedge

from hereish.core.mechanism import fixed_rate, fixed_utility
from hereish.core.spaces import Sphere
from hereish.core.types import Bools, Floats
from hereish.evaluation import dataset
from hereish.evaluation.configurations import MANAGERS, Setting, configurations
from hereish.evaluation.figures import files, panels, trace_figure
from hereish.evaluation.figures.curves import ERRORS, GENERAL, RATE, Curves
from hereish.evaluation.metrics import Numbers
from hereish.evaluation.study import PS, Row

KILOMETRES = {"error_mean_m", "error_p90_m"}
PREDICTIVE = [(manager, skip) for manager in MANAGERS for skip in (False, True)]
INDEPENDENT = {"fixed_rate": (1 / 30, 2606.0), "fixed_utility": (0.0563, 1543.0)}


def study_rows(
    ps: tuple[float | None, ...] = PS,
    dataset: str = "geolife",
    sampling: str = "authors",
    **other: Any,
) -> list[Row]:
    """Rows as the study writes them, every number another one."""
    rng = np.random.default_rng(len(ps))
    rows = []
    for p in ps:
        for configuration in configurations(Setting()):
            row: Row = {
                "dataset": dataset,
                "p": p,
                "mechanism": configuration.mechanism,
                "manager": configuration.manager,
                "skip": configuration.skip,
                "sampling": sampling,
                "as_published": False,
                "samples": 10,
                "traces": 5000,
            }
            rate, mean_m = INDEPENDENT[configuration.manager]
            usual = (0.6, 0.5, 0.4, mean_m, 1.9 * mean_m, rate)
            for name, value in zip(Numbers._fields, usual, strict=True):
                if configuration.mechanism != "independent":
                    value *= rng.uniform(0.5, 0.9)
                row |= {name: value, f"{name}_lo": 0.98 * value, f"{name}_hi": 1.03 * value}
            rows.append(row | other)
    return rows


def forgotten(row: Row) -> Row:
    """The row as it is where no trace is left."""
    nothing = [f"{name}{end}" for name in Numbers._fields for end in ("", "_lo", "_hi")]
    return row | dict.fromkeys(nothing) | {"traces": 0}


def lines(figure: Figure | None) -> dict[str, Floats]:
    """What is drawn, by the name of the line: x and y."""
    assert figure is not None
    return {
        str(line.get_label()): np.asarray(line.get_xydata())
        for axes in figure.axes
        for line in axes.get_lines()
    }


def texts(figure: Figure | None) -> str:
    assert figure is not None
    within = [text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label, axes.title)]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    return "\n".join(
        [figure.get_suptitle(), *titles, *(t.get_text() for t in within + figure.texts)]
    )


def expected(rows: list[Row], mechanism: str, manager: str, skip: bool, name: str) -> Floats:
    asked = (mechanism, manager, skip if mechanism == "predictive" else False)
    own = [r for r in rows if (r["mechanism"], r["manager"], r["skip"]) == asked]
    unit = 1000.0 if name in KILOMETRES else 1.0
    return np.array([(r["p"], np.nan if r[name] is None else r[name] / unit) for r in own])


def named(manager: str, skip: bool) -> Iterator[tuple[str, str]]:
    """The mechanism and the number of each line that there has to be."""
    for line in GENERAL:
        if skip or line is not GENERAL[2]:
            yield "predictive", line.name
    for line in (*ERRORS, RATE):
        for mechanism in ("predictive", "independent", "repeat"):
            yield mechanism, line.name


@pytest.mark.parametrize(("manager", "skip"), PREDICTIVE)
def test_lines_are_the_rows(manager: str, skip: bool) -> None:
    rows = study_rows()
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    figure = panels.configuration_figure(shuffled, manager, skip)
    drawn = lines(figure)
    for mechanism, name in named(manager, skip):
        wanted = expected(rows, mechanism, manager, skip, name)
        np.testing.assert_allclose(drawn.pop(f"{mechanism} {name}"), wanted, rtol=1e-12)
    assert set(drawn) <= {"break-even", "paper", "best"}  # nothing else looks like a result
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Predictions and tests",
        "Error of the reports, km",
        "Budget for a report",
    ]


@pytest.mark.parametrize(("manager", "skip"), PREDICTIVE)
def test_shades_are_the_intervals(manager: str, skip: bool) -> None:
    rows = study_rows()
    figure = panels.configuration_figure(rows, manager, skip)
    assert figure is not None
    shaded = [
        np.round(np.asarray(path.vertices, dtype=np.float64), 9).tolist()
        for axes in figure.axes
        for shade in axes.collections
        for path in shade.get_paths()
    ]
    for mechanism, name in named(manager, skip):
        if mechanism == "repeat":
            continue
        unit = 1000.0 if name in KILOMETRES else 1.0
        ends = np.concatenate(
            [
                [(r["p"], r[f"{name}{end}"] / unit) for end in ("_lo", "_hi")]
                for r in rows
                if (r["mechanism"], r["manager"]) == (mechanism, manager)
                and r["skip"] == (skip and mechanism == "predictive")
            ]
        )
        assert any(all(end in shade for end in np.round(ends, 9).tolist()) for shade in shaded)


def test_what_is_not_known_is_a_hole() -> None:
    rows = [forgotten(r) if r["p"] in (0.3, 1.0) else r for r in study_rows()]
    drawn = lines(panels.configuration_figure(rows, "fixed_utility", True))
    for mechanism, name in named("fixed_utility", True):
        found = drawn[f"{mechanism} {name}"]
        np.testing.assert_array_equal(np.isnan(found[:, 1]), np.isin(PS, (0.3, 1.0)))
        wanted = expected(rows, mechanism, "fixed_utility", True, name)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_panels_without_anything_are_left_out() -> None:
    rows = [r | {"rate": None, "rate_lo": None, "rate_hi": None} for r in study_rows()]
    figure = panels.configuration_figure(rows, "fixed_rate", False)
    assert figure is not None
    assert len(figure.axes) == 2
    assert not [name for name in lines(figure) if "rate" in name.split()[-1] == "rate"]


def test_where_nothing_is_known_nothing_is_drawn(tmp_path: Path) -> None:
    rows = [forgotten(r) for r in study_rows() + study_rows(sampling="gaps")]
    assert files.draw(rows, tmp_path) == []
    assert files.draw([], tmp_path) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("p", "words"), [(0.2, "p = 0.2"), (None, "p is not told"), (0.0, "p = 0")]
)
def test_a_single_p_is_points(p: float | None, words: str) -> None:
    rows = study_rows((p,), sampling="given")
    figure = panels.configuration_figure(rows, "fixed_utility", True)
    assert figure is not None
    assert words in texts(figure).splitlines()
    drawn = lines(figure)
    for mechanism, name in named("fixed_utility", True):
        wanted = expected(rows, mechanism, "fixed_utility", True, name)[:, 1]
        assert drawn[f"{mechanism} {name}"][:, 1].tolist() == pytest.approx(wanted.tolist())
    places = {m: drawn[f"{m} rate"][0, 0] for m in ("predictive", "independent", "repeat")}
    assert len(set(places.values())) == 3  # beside each other, not on each other
    solid = [li for axes in figure.axes for li in axes.get_lines() if li.get_linestyle() != "None"]
    assert {str(line.get_label()) for line in solid} <= {"break-even", "paper", "best"}


def test_a_p_that_is_not_told_is_joined_to_no_other() -> None:
    rows = study_rows((0.2, None, 0.5))
    figure = panels.configuration_figure(rows, "fixed_rate", False)
    assert figure is not None
    parts = [li for li in figure.axes[2].get_lines() if li.get_label() == "predictive rate"]
    told, untold = (np.asarray(part.get_xydata()) for part in parts)
    assert told[:, 0].tolist() == [0.2, 0.5]
    assert untold[0, 0] > 0.5
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["0.2", "0.5", "?"]


@pytest.mark.parametrize(
    ("manager", "skip", "claims"),
    [
        (
            "fixed_rate",
            False,
            ["the paper: 0.5 to 0.7 km better", "the paper: 1.3 to 1.9 km better"],
        ),
        ("fixed_rate", True, []),
        ("fixed_utility", False, ["the paper: down to 4.1%"]),
        ("fixed_utility", True, ["the paper: down to 2%"]),
    ],
)
def test_claims_of_the_paper(manager: str, skip: bool, claims: list[str]) -> None:
    figure = panels.configuration_figure(study_rows(), manager, skip)
    told = [line for line in texts(figure).splitlines() if line.startswith("the paper")]
    assert told == claims
    elsewhere = panels.configuration_figure(study_rows(dataset="cabs"), manager, skip)
    told = [line for line in texts(elsewhere).splitlines() if line.startswith("the paper")]
    assert told == [claim.replace("the paper", "the paper, GeoLife") for claim in claims]


@pytest.mark.parametrize(("manager", "skip"), PREDICTIVE)
@pytest.mark.parametrize("name", ["rate", "error_mean_m"])
def test_no_claims_about_other_settings(manager: str, skip: bool, name: str) -> None:
    rows = [r | {name: r[name] * 1.5} for r in study_rows()]
    shown = texts(panels.configuration_figure(rows, manager, skip))
    assert "the paper" not in shown
    assert "3 km" not in shown.splitlines()[0]
    assert "30 reports" not in shown.splitlines()[0]


def test_the_band_of_the_paper_lies_below_independent_noise() -> None:
    figure = panels.configuration_figure(study_rows(), "fixed_rate", False)
    assert figure is not None
    bands = [patch.get_window_extent() for patch in figure.axes[1].patches]
    in_km = figure.axes[1].transData.inverted()
    ends = [tuple(np.round(in_km.transform(band)[:, 1], 3).tolist()) for band in bands]
    p90 = 1.9 * 2.606
    assert ends == [(1.906, 2.106), (round(p90 - 1.9, 3), round(p90 - 1.3, 3))]


def test_break_even_is_the_mechanisms_own() -> None:
    asked = Setting()
    built = {
        "fixed_rate": fixed_rate(asked.privacy, asked.reports),
        "fixed_utility": fixed_utility(asked.privacy, asked.accuracy_m),
    }
    for manager, mechanism in built.items():
        drawn = lines(panels.configuration_figure(study_rows(), manager, False))
        assert set(drawn["break-even"][:, 1]) == {mechanism.break_even}
        assert "break-even" not in lines(panels.configuration_figure(study_rows(), manager, True))


def test_the_lowest_rate_is_told() -> None:
    rows = study_rows()
    asked = ("predictive", "fixed_utility", True)
    own = [r for r in rows if (r["mechanism"], r["manager"], r["skip"]) == asked]
    own[4] |= {"rate": 0.0196, "rate_lo": 0.019, "rate_hi": 0.02}
    figure = panels.configuration_figure(rows, "fixed_utility", True)
    assert "1.96%, 51 reports" in texts(figure)
    np.testing.assert_allclose(lines(figure)["best"], [[0.4, 0.0196]])


def test_values_out_of_all_proportion_do_not_hide_the_others() -> None:
    rows = study_rows()
    first = next(r for r in rows if (r["mechanism"], r["manager"]) == ("predictive", "fixed_rate"))
    first |= {"error_mean_m": 9e5, "error_mean_m_hi": 9e6}
    figure = panels.configuration_figure(rows, "fixed_rate", False)
    assert figure is not None
    assert figure.axes[1].get_ylim()[1] < 15.0
    assert "up to 900" in texts(figure)


def test_whose_numbers_are_told() -> None:
    rows = study_rows(sampling="gaps", dataset="Beijing $a_b$ 北", as_published=True)
    for row in rows:
        row["traces"] = 12345 if row["p"] == 0.0 else 67
    shown = texts(panels.configuration_figure(rows, "fixed_utility", True))
    assert "Fixed utility, 3 km, with skip" in shown
    assert "Beijing $a_b$ ?, by the authors' rules" in shown
    assert "sampled with gaps" in shown
    assert "12,345 (p = 0) to 67 (p = 1) traces in 10 samples" in shown


def test_overview_shows_every_private_rate() -> None:
    rows = study_rows() + [r | {"rate": r["rate"] * 1.1} for r in study_rows(sampling="gaps")]
    figure = panels.overview_figure(rows)
    assert figure is not None
    assert len(figure.axes) == 2
    for axes, sampling in zip(figure.axes, ("authors", "gaps"), strict=True):
        own = [r for r in rows if r["sampling"] == sampling]
        wanted = [
            expected(own, "predictive", manager, skip, "rate") for manager, skip in PREDICTIVE
        ] + [expected(own, "independent", manager, False, "rate") for manager in MANAGERS]
        found = [np.asarray(line.get_xydata()) for line in axes.get_lines()]
        assert len(found) == len(wanted)
        for line in wanted:
            assert any(np.allclose(line, other, rtol=1e-12) for other in found)
        assert axes.get_ylim() == figure.axes[0].get_ylim()


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_files_are_whole_and_differ_in_name(tmp_path: Path) -> None:
    ps = (0.0, 1.0)
    written = files.draw(study_rows(ps) + study_rows(ps, sampling="gaps"), tmp_path / "a" / "b")
    assert [path.name for path in written] == [
        "geolife-authors-fixed-rate.png",
        "geolife-authors-fixed-rate-skip.png",
        "geolife-authors-fixed-utility.png",
        "geolife-authors-fixed-utility-skip.png",
        "geolife-gaps-fixed-rate.png",
        "geolife-gaps-fixed-rate-skip.png",
        "geolife-gaps-fixed-utility.png",
        "geolife-gaps-fixed-utility-skip.png",
        "geolife-overview.png",
    ]
    assert sorted(written) == sorted((tmp_path / "a" / "b").iterdir())
    assert {png_size(path) for path in written} == {(1800, 750)}


def only(rows: list[Row], manager: str, skip: bool) -> list[Row]:
    return [r for r in rows if (r["manager"], r["skip"]) == (manager, skip)]


def test_names_of_data_sets_stay_in_the_folder_and_apart(tmp_path: Path) -> None:
    names = ["a b", "A-b", "..", "../x\\y\n"]
    rows = [r for name in names for r in only(study_rows((0.5,), name), "fixed_rate", True)]
    rows += only(study_rows((0.5,), "a b", as_published=True), "fixed_rate", True)
    written = files.draw(rows, tmp_path / "out")
    assert sorted(path.name for path in written) == [
        "A-b-authors-fixed-rate-skip-2.png",
        "a-b-as-published-authors-fixed-rate-skip.png",
        "a-b-authors-fixed-rate-skip.png",
        "data-authors-fixed-rate-skip.png",
        "x-y-authors-fixed-rate-skip.png",
    ]
    assert sorted(written) == sorted((tmp_path / "out").iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_same_bytes_whatever_matplotlib_is_told(tmp_path: Path) -> None:
    rows = only(study_rows((0.0, 0.5)), "fixed_utility", True)
    first = [path.read_bytes() for path in files.draw(rows, tmp_path / "one")]
    wild: Any = {
        "savefig.bbox": "tight",
        "savefig.dpi": 30,
        "font.size": 30,
        "axes.facecolor": "red",
    }
    with mpl.rc_context(wild):
        before = dict(mpl.rcParams)
        second = [path.read_bytes() for path in files.draw(rows, tmp_path / "two")]
        assert dict(mpl.rcParams) == before
    assert first == second
    assert len(first) == 1


@pytest.fixture(scope="module")
def city() -> tuple[dataset.Trajectories, Bools]:
    return dataset.of_somebody_on_foot(dataset.synthetic(60))


def told(trace: trace_figure.Trace | None) -> trace_figure.Trace:
    assert trace is not None
    return trace


def test_a_telling_trace_is_one(city: tuple[dataset.Trajectories, Bools]) -> None:
    trace = told(trace_figure.telling(*city, 1, Setting()))
    assert trace_figure.FEWEST <= len(trace.kind) <= trace_figure.MOST
    assert trace.kind[0] == "hard"
    kinds, counts = np.unique(trace.kind, return_counts=True)
    assert dict(zip(kinds.tolist(), counts.tolist(), strict=True))["hard"] >= 2
    assert "easy" in kinds or "untested" in kinds
    assert np.ptp(trace.asked_km, axis=0).max() >= 3.0
    assert (np.diff(trace.asked_h) > 0.0).all()


def own_points(trace: trace_figure.Trace, given: dataset.Trajectories) -> Floats:
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
    trace = told(trace_figure.telling(given, slow, 1, Setting()))
    steps_m = np.hypot(*np.diff(trace.path_km, axis=0).T) * 1000.0
    points = own_points(trace, given)
    true_m = Sphere().distance(points[1:], points[:-1])
    np.testing.assert_allclose(steps_m, true_m, rtol=1e-2, atol=0.01)  # flat is nearly round
    apart = np.abs(trace.asked_km[:, None] - trace.path_km[None]).max(axis=2).min(axis=1)
    assert apart.max() == 0.0  # queries are fixes
    again = np.flatnonzero(trace.kind != "hard")
    np.testing.assert_array_equal(trace.reported_km[again], trace.reported_km[again - 1])


def test_a_trace_across_the_date_line_is_the_same(city: tuple[dataset.Trajectories, Bools]) -> None:
    given, slow = city
    here = told(trace_figure.telling(given, slow, 1, Setting()))
    own = own_points(here, given)
    middle = (own[:, 1].min() + own[:, 1].max()) / 2.0
    east = given.points + np.array([0.0, 180.0 - middle])
    east[:, 1] = (east[:, 1] + 180.0) % 360.0 - 180.0
    there = told(trace_figure.telling(replace(given, points=east), slow, 1, Setting()))
    np.testing.assert_allclose(there.path_km, here.path_km, atol=1e-6)
    np.testing.assert_allclose(there.asked_km, here.asked_km, atol=1e-6)


def of_label(axes: Axes, label: str) -> list[Floats]:
    return [np.asarray(li.get_xydata()) for li in axes.get_lines() if li.get_label() == label]


def test_the_picture_shows_the_trace(city: tuple[dataset.Trajectories, Bools]) -> None:
    trace = told(trace_figure.telling(*city, 1, Setting()))
    figure = trace_figure.picture(trace)
    shown = figure.axes[0]
    path = np.concatenate(of_label(shown, "path"))
    np.testing.assert_array_equal(path, trace.path_km)
    assert len(of_label(shown, "silent")) == np.count_nonzero(trace.silent)
    ties = np.stack(of_label(shown, "tie"))
    np.testing.assert_array_equal(ties, np.stack([trace.asked_km, trace.reported_km], axis=1))
    slices = [patch for patch in shown.patches if isinstance(patch, Wedge)]
    assert sorted(str(s.get_label()) for s in slices) == sorted(trace.kind.tolist())
    numbers = [int(text.get_text()) for text in shown.texts if text.get_text().isdigit()]
    assert sum(numbers) == len(trace.kind)
    assert len(numbers) == np.count_nonzero(trace.kind == "hard")
    assert shown.get_aspect() == 1.0
    (bar,) = of_label(shown, "scale")
    assert f"{np.ptp(bar[:, 0]):g} km" in texts(figure)
    assert trace_figure.WARNING in texts(figure)
    errors = {
        str(dots.get_label()): np.asarray(dots.get_offsets()) for dots in figure.axes[2].collections
    }
    true_km = np.hypot(*(trace.reported_km - trace.asked_km).T)
    for kind, dots in errors.items():
        np.testing.assert_allclose(dots[:, 1], true_km[trace.kind == kind])


def test_larger_rings_answered_more(city: tuple[dataset.Trajectories, Bools]) -> None:
    trace = told(trace_figure.telling(*city, 1, Setting()))
    figure = trace_figure.picture(trace)
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
    assert all(files.draw_trace(*city, path, 1, Setting()) for path in paths)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert png_size(paths[0]) == (1800, 1110)
    assert len(list(tmp_path.iterdir())) == 2


def test_without_a_telling_trace_there_is_no_picture(
    city: tuple[dataset.Trajectories, Bools], tmp_path: Path
) -> None:
    given, slow = city
    still = replace(given, points=np.broadcast_to(given.points[0], given.points.shape))
    nobody = given.take(np.zeros(len(given), dtype=np.bool_))
    assert not files.draw_trace(still, slow, tmp_path / "true-trace.png", 1, Setting())
    assert not files.draw_trace(nobody, slow[:0], tmp_path / "true-trace.png", 1, Setting())
    assert not list(tmp_path.iterdir())


def test_a_trace_does_not_show_places_in_words(city: tuple[dataset.Trajectories, Bools]) -> None:
    trace = told(trace_figure.telling(*city, -5, Setting()))
    assert repr(trace) == f"<Trace of {len(trace.kind)} queries>"


def test_curves_choose_the_rows_of_their_configuration() -> None:
    curves = Curves.of(study_rows(), "fixed_rate", True)
    assert {m: len(rows) for m, rows in curves.rows.items()} == dict.fromkeys(
        ("predictive", "independent", "repeat"), len(PS)
    )
    assert all(row["skip"] for row in curves.rows["predictive"])
    assert not any(row["skip"] for row in curves.rows["independent"])
