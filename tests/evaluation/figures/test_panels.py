"""The panels of the study's figures: what is drawn is what was measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hereish.core.mechanism import PredictiveMechanism, fixed_rate, fixed_utility
from hereish.core.types import Floats
from hereish.evaluation.figures import panels
from hereish.evaluation.figures.curves import ERRORS, GENERAL, RATE
from hereish.evaluation.study import PS, Row
from hereish.evaluation.study_settings import MANAGERS, Manager, StudySettings
from tests.support.study_figures import lines, study_rows, texts, without_metrics

KILOMETRES = {"error_mean_m", "error_p90_m"}
PREDICTIVE = [(manager, skip) for manager in MANAGERS for skip in (False, True)]


def expected(rows: list[Row], mechanism: str, manager: Manager, skip: bool, name: str) -> Floats:
    asked = (mechanism, manager, skip if mechanism == "predictive" else False)
    own = [r for r in rows if (r["mechanism"], r["manager"], r["skip"]) == asked]
    unit = 1000.0 if name in KILOMETRES else 1.0
    return np.array([(r["p"], np.nan if r[name] is None else r[name] / unit) for r in own])


def named(manager: Manager, skip: bool) -> Iterator[tuple[str, str]]:
    """The mechanism and the number of each line that there has to be."""
    for line in GENERAL:
        if skip or line is not GENERAL[2]:
            yield "predictive", line.name
    for line in (*ERRORS, RATE):
        for mechanism in ("predictive", "independent", "repeat"):
            yield mechanism, line.name


@pytest.mark.parametrize(("manager", "skip"), PREDICTIVE)
def test_lines_are_the_rows(manager: Manager, skip: bool) -> None:
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
        "Budget per report",
    ]


@pytest.mark.parametrize(("manager", "skip"), PREDICTIVE)
def test_shades_are_the_intervals(manager: Manager, skip: bool) -> None:
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
    rows = [without_metrics(r) if r["p"] in (0.3, 1.0) else r for r in study_rows()]
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


@pytest.mark.parametrize(("p", "words"), [(0.2, "p = 0.2"), (None, "p is unknown"), (0.0, "p = 0")])
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
def test_claims_of_the_paper(manager: Manager, skip: bool, claims: list[str]) -> None:
    figure = panels.configuration_figure(study_rows(), manager, skip)
    told = [line for line in texts(figure).splitlines() if line.startswith("the paper")]
    assert told == claims
    elsewhere = panels.configuration_figure(study_rows(dataset="cabs"), manager, skip)
    told = [line for line in texts(elsewhere).splitlines() if line.startswith("the paper")]
    assert told == [claim.replace("the paper", "the paper, GeoLife") for claim in claims]


@pytest.mark.parametrize(("manager", "skip"), PREDICTIVE)
@pytest.mark.parametrize("name", ["rate", "error_mean_m"])
def test_no_claims_about_other_settings(manager: Manager, skip: bool, name: str) -> None:
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
    asked = StudySettings()
    built: dict[Manager, PredictiveMechanism] = {
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
