from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hereish

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
UTILITY: Callable[..., Any] = lambda **k: hereish.fixed_utility(PRIVACY, 3000, **k)  # noqa: E731
RATE: Callable[..., Any] = lambda **k: hereish.fixed_rate(PRIVACY, 30, **k)  # noqa: E731

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "level": (lambda: hereish.Privacy(0.0, 100), "level must be a finite number above 0, found 0"),
    "radius": (lambda: hereish.Privacy(1.0, -5), "radius_m must be .* found -5"),
    "no number": (lambda: hereish.Privacy("ln 10", 5), "level must be a number, found 'ln 10'"),  # type: ignore[arg-type]
    "infinity": (lambda: hereish.Privacy(math.inf, 5), "level must be a finite number"),
    "range": (lambda: hereish.Privacy(1e-150, 1e150), "level / radius_m must lie between"),
    "accuracy": (lambda: hereish.fixed_utility(PRIVACY, math.nan), "accuracy_m must be"),
    "too fine": (lambda: hereish.fixed_utility(PRIVACY, 100), "ask for 168.9 m or more"),
    "too fine, alone": (lambda: hereish.independent(PRIVACY, accuracy_m=100), "ask for 168.9 m"),
    "reports": (lambda: hereish.fixed_rate(PRIVACY, 2.5), "reports must be a whole number"),  # type: ignore[arg-type]
    "no reports": (lambda: hereish.independent(PRIVACY, reports=0), "from 1, found 0"),
    "one report": (lambda: hereish.fixed_rate(PRIVACY, 1), "first of 1 .* plan for more reports"),
    "both": (lambda: hereish.independent(PRIVACY, reports=3, accuracy_m=3000), "found both"),
    "neither": (lambda: hereish.independent(PRIVACY), "found neither"),
    "eta": (lambda: UTILITY(eta=0.0), "eta must be"),
    "gamma": (lambda: RATE(gamma=-1), "gamma must be"),
    "delta": (lambda: UTILITY(delta=0.4), "delta must lie strictly between 0.5 and 1"),
    "delta 1": (lambda: RATE(delta=1.0), "delta must lie strictly between"),
    "rate": (lambda: RATE(prediction_rate=1.0), "prediction_rate must be at least 0 and below 1"),
    "exhausted": (lambda: RATE(on_exhausted="carry on"), "'stop' or 'predict', found 'carry on'"),
    "privacy": (lambda: hereish.PredictiveMechanism(0.1, hereish.AlwaysNoise(1)), "a hereish.Pr"),  # type: ignore[arg-type]
    "speed": (lambda: hereish.SkipBySpeed(kmh=0), "kmh must be"),
    "limit": (lambda: hereish.SkipBySpeed(limit_m=-1), "limit_m must be"),
    "since": (lambda: hereish.SkipBySpeed(since="dawn"), "'hard' or 'tested', found 'dawn'"),  # type: ignore[arg-type]
    "grid": (lambda: hereish.Plane(grid_m=0), "grid_m must be"),
    "line grid": (lambda: hereish.Line(grid=math.nan), "grid must be"),
    "decimals": (lambda: hereish.Sphere(decimals=9), "decimals must be a whole number"),
    "memory": (lambda: hereish.lift(lambda past, at_s: None, memory=0), "memory must be"),
}


@pytest.mark.parametrize(("build", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_parameters_are_refused_with_what_was_required_and_found(
    build: Callable[[], object], words: str
) -> None:
    with pytest.raises(hereish.ParameterError, match=words):
        build()


def test_settings_that_do_not_pay_are_warned_about_and_still_built() -> None:
    with pytest.warns(hereish.DoesNotPayOffWarning, match="more than 93.1%"):
        m = UTILITY(eta=1.0)
    assert m.break_even == pytest.approx(0.931, abs=5e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        UTILITY(eta=1.0, prediction_rate=0.95)


POINTS = np.array([[60.0, 25.0], [60.1, 25.1], [60.2, 25.2], [60.3, 25.3], [60.4, 25.4]])
TIMES = np.array([0.0, 1.0, 2.0, 0.5, 1.5])
OFFSETS = [0, 3, 3, 5]


def broken(row: int, column: int, value: float) -> np.ndarray:
    points = POINTS.copy()
    points[row, column] = value
    return points


BATCHES: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    "latitude": (
        (broken(4, 0, 91.5), TIMES, OFFSETS),
        r"row 4 \(point 1 of trace 2\): latitude is",
    ),
    "longitude": ((broken(0, 1, -181.5), TIMES, OFFSETS), r"row 0 \(point 0 of trace 0\): longit"),
    "NaN": ((broken(2, 1, math.nan), TIMES, OFFSETS), "longitude is not a finite number"),
    "backwards": ((POINTS, [0, 2, 1, 0, 1], OFFSETS), r"row 2 \(point 2 of trace 0\): its time is"),
    "no time": ((POINTS, [0, 1, math.nan, 0, 1], OFFSETS), "row 2 .*not a number of Unix seconds"),
    "milliseconds": ((POINTS, TIMES + 1.7e12, OFFSETS), "milliseconds, perhaps"),
    "shape": ((POINTS[:, :1], TIMES, OFFSETS), r"points must have shape \(n, 2\), found \(5, 1\)"),
    "times": ((POINTS, TIMES[:4], OFFSETS), r"at_s must have shape \(5,\)"),
    "offsets end": ((POINTS, TIMES, [0, 4]), "end at 5"),
    "offsets start": ((POINTS, TIMES, [1, 5]), "start at 0"),
    "offsets fall": ((POINTS, TIMES, [0, 4, 3, 5]), "never fall"),
    "offsets kind": ((POINTS, TIMES, [0.0, 5.0]), "whole numbers"),
    "no numbers": (([["a", "b"]], [0.0], [0, 1]), "arrays of numbers"),
}


@pytest.mark.parametrize(("batch", "words"), BATCHES.values(), ids=BATCHES.keys())
def test_a_bad_batch_is_refused_by_row_and_without_its_coordinates(
    batch: tuple[Any, Any, Any], words: str
) -> None:
    with pytest.raises(hereish.HereishError, match=words) as refused:
        hereish.sanitize(RATE(), *batch)
    for digits in ("91.5", "181.5", "60.", "25."):
        assert digits not in str(refused.value)


def test_a_good_batch_may_have_empty_traces_and_none_at_all() -> None:
    out = hereish.sanitize(RATE(), POINTS, TIMES, OFFSETS)
    assert out.released.all()
    assert out.spent.shape == (3,)
    assert out.spent[1] == 0.0
    trailing = hereish.sanitize(RATE(), POINTS, TIMES, [0, 0, 3, 5, 5, 5])
    assert trailing.released.all()
    assert trailing.spent[[0, 3, 4]].tolist() == [0.0, 0.0, 0.0]
    none = hereish.sanitize(RATE(), np.empty((0, 2)), [], [0])
    assert none.value.shape == (0, 2)
    assert none.spent.shape == (0,)


def test_the_caller_s_arrays_are_not_changed() -> None:
    points, times, offsets = POINTS.copy(), TIMES.copy(), np.array(OFFSETS)
    hereish.sanitize(RATE(), points, times, offsets)
    assert np.array_equal(points, POINTS)
    assert np.array_equal(times, TIMES)
    assert offsets.tolist() == OFFSETS


def test_a_batch_takes_one_source_of_uniforms() -> None:
    uniforms = np.full((5, 4), 0.5)
    keyed = hereish.KeyedDraws(b"k" * 32)
    for wrong in (
        {"seed": 1, "uniforms": uniforms},
        {"uniforms": uniforms[:4]},
        {"uniforms": uniforms * 2},
        {"draws": keyed},
        {"users": ["a", "b", "c"]},
        {"draws": keyed, "users": ["a"]},
    ):
        with pytest.raises(hereish.ParameterError):
            hereish.sanitize(RATE(), POINTS, TIMES, OFFSETS, **wrong)


def test_a_batch_says_whether_it_is_private() -> None:
    assert hereish.sanitize(RATE(), POINTS, TIMES, OFFSETS).private
    seeded = hereish.sanitize(RATE(), POINTS, TIMES, OFFSETS, seed=1)
    assert not seeded.private
    assert "NOT PRIVATE" in repr(seeded)
    assert "NOT PRIVATE" in seeded.guarantee
