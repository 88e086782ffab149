"""A batch draws the uniforms of noise only for lanes that are hard, each number once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import synthetic
from hereish.core import batch_draws
from hereish.core.randomness import (
    KeyedDraws,
    LateUniforms,
    SecureStream,
    columns_of,
    late_from_stream,
)
from hereish.core.types import Floats

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
PEOPLE, REPORTS = 300, 12
MECHANISMS = {
    "fixed utility": hereish.fixed_utility(PRIVACY, accuracy_m=3000),
    "fixed rate": hereish.fixed_rate(PRIVACY, reports=8),
    "with free guesses": hereish.fixed_utility(PRIVACY, accuracy_m=2000, on_exhausted="predict"),
}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Floats]:
    """What streams hand out, in their order."""
    numbers: list[Floats] = []
    draw = SecureStream.uniforms

    def record(self: SecureStream, count: int, out: Floats | None = None) -> Floats:
        numbers.append(draw(self, count, out).copy())
        return numbers[-1].copy() if out is None else out

    monkeypatch.setattr(SecureStream, "uniforms", record)
    return numbers


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_batch_is_that_of_the_numbers_it_has_drawn(name: str, drawn: list[Floats]) -> None:
    m = MECHANISMS[name]
    day = synthetic.day(users=PEOPLE, points_each=REPORTS, seed=1)
    given = (day.points, day.at_s, day.offsets)
    out = hereish.sanitize(m, *given)

    hard = out.hard.reshape(PEOPLE, REPORTS)
    assert 0 < hard.sum() < hard.size
    uniforms = np.full((PEOPLE, REPORTS, m.uniforms), 0.5)
    left = iter(drawn)
    for step in range(REPORTS):
        uniforms[:, step, 0] = next(left)
        if lanes := np.count_nonzero(hard[:, step]):
            noise = next(left).reshape(m.uniforms - 1, lanes)
            uniforms[hard[:, step], step, 1:] = noise.T
    assert next(left, None) is None
    again = hereish.sanitize(m, *given, uniforms=uniforms.reshape(-1, m.uniforms))
    for field in ("value", "released", "hard", "eps_test", "eps_noise", "threshold", "spent"):
        np.testing.assert_array_equal(getattr(out, field), getattr(again, field))
    everything = np.concatenate(drawn)
    assert len(np.unique(everything)) == len(everything)


def test_numbers_of_others_are_not_late(drawn: list[Floats]) -> None:
    day = synthetic.day(users=PEOPLE, points_each=REPORTS, seed=1)
    given, m = (day.points, day.at_s, day.offsets), MECHANISMS["fixed utility"]
    hereish.sanitize(m, *given, 1)
    hereish.sanitize(m, *given, draws=hereish.KeyedDraws(b"k" * 16), users=["a"] * PEOPLE)
    assert not drawn


@pytest.mark.parametrize("name", MECHANISMS)
def test_keyed_numbers_are_the_same_late(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a function of a report, whenever they are derived, and for however many lanes."""
    m, day = MECHANISMS[name], synthetic.day(users=PEOPLE, points_each=REPORTS, seed=1)
    given, users = (day.points, day.at_s, day.offsets), [str(i) for i in range(PEOPLE)]
    late: list[int] = []
    derive = KeyedDraws.late_for_reports

    def record(self: KeyedDraws, *about: Any) -> LateUniforms:
        late.append(len(about[-1]))
        return derive(self, *about)

    monkeypatch.setattr(KeyedDraws, "late_for_reports", record)
    out = hereish.sanitize(m, *given, draws=KeyedDraws(b"k" * 16), users=users)
    assert late
    late.clear()
    monkeypatch.setattr(batch_draws, "_may_be_late", lambda m: False)
    again = hereish.sanitize(m, *given, draws=KeyedDraws(b"k" * 16), users=users)
    assert not late
    for field in ("value", "released", "hard", "spent"):
        np.testing.assert_array_equal(getattr(out, field), getattr(again, field))


def test_a_column_is_drawn_once() -> None:
    late = late_from_stream((5, 4), SecureStream(), lambda name, count: np.empty(count))
    assert late.columns(0, 1, None).shape == (5, 1)
    with pytest.raises(ValueError, match="once"):
        late.columns(0, 1, None)
    with pytest.raises(ValueError, match="once"):
        late.columns(1, 5, np.arange(2))
    with pytest.raises(ValueError, match="once"):
        late.columns(1, 4, np.arange(6))
    assert late.columns(1, 4, np.arange(2)).shape == (2, 3)


def test_columns_of_an_array_are_its_own() -> None:
    u = np.arange(20.0).reshape(5, 4)
    np.testing.assert_array_equal(columns_of(u, 1, 4), u[:, 1:])
    np.testing.assert_array_equal(columns_of(u, 1, 4, np.array([3, 0])), u[[3, 0], 1:])


def test_two_streams_differ() -> None:
    one, other = SecureStream().uniforms(1000), SecureStream().uniforms(1000)
    assert not np.intersect1d(one, other).size
