"""Reports that are stepped ahead give the same bits as the loop that takes them one by one.

What is foreseen may be wrong: then it is not used. A run that went on from a wrong one would
spend what is not there, so what is compared is everything, down to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hereish import (
    Every,
    Forever,
    Hours,
    KeyedDraws,
    NoReset,
    PartError,
    Past,
    Plan,
    PointError,
    PredictiveMechanism,
    Sanitized,
    SkipBySpeed,
    fixed_rate,
    fixed_utility,
    independent,
    lift,
    sanitize,
)
from hereish.core import batch, stretches
from hereish.core.prediction import Parrot
from hereish.core.randomness import SeededDraws
from hereish.core.run import Run
from hereish.core.spaces import Space
from hereish.core.step import Prepared, decide, prepare
from hereish.core.types import Floats, Ints
from hereish.testing import NoNoise
from tests.support.whole_days import PRIVACY, SPACES, ST_JOHNS, START_S, presets, uniforms

KEY = bytes(range(32))


@cache
def mechanisms(place: str) -> dict[str, PredictiveMechanism]:
    """Every kind of mechanism whose reports can be foreseen, by name."""
    space = SPACES[place]
    paying: dict[str, Any] = {"gamma": 2.0, "prediction_rate": 0.8, "space": space}
    accuracy_m = 30.0 * space.c_noise(0.9) / PRIVACY.eps_per_m
    hourly, limit = Every(timedelta(hours=1)), Hours(5).within(1.5 * PRIVACY.level)
    built = presets(space) | {
        "utility": fixed_utility(PRIVACY, accuracy_m, window=ST_JOHNS, **paying),
        "utility, skip": fixed_utility(
            PRIVACY, accuracy_m, skip=SkipBySpeed(5.0, 900.0, since="tested"), **paying
        ),
        "rate": fixed_rate(PRIVACY, 40, window=hourly, **paying),
        "rate, skip": fixed_rate(PRIVACY, 60, skip=SkipBySpeed(30.0), **paying),
        "rate for ever": fixed_rate(PRIVACY, 400, **paying),
        "independent": independent(PRIVACY, reports=9, window=hourly, space=space),
        "limits": fixed_rate(PRIVACY, 40, window=hourly & limit & Forever.within(9.0), **paying),
        "rolling": fixed_rate(PRIVACY, 40, window=Hours(2), **paying),
    }
    later = {f"{name}, predict": replace(m, on_exhausted="predict") for name, m in built.items()}
    return built | later


class Log(NamedTuple):
    """Dense traces, laid end to end."""

    points: Floats
    at_s: Floats
    offsets: Ints


def dense_log(space: Space, lengths: Sequence[int], every_s: float, seed: int) -> Log:
    """Somebody who stays and moves on, seen about so often, and sometimes not for hours or days."""
    rng = np.random.default_rng(seed)
    total = sum(lengths)
    gaps = every_s * rng.choice([0.0, 0.5, 1.0, 1.0, 1.0, 2.0], total)
    gaps[rng.random(total) < 0.01] += rng.choice([3600.0, 7 * 3600.0, 40 * 3600.0])
    steps = rng.normal(size=(total, len(space.coordinates))) * (rng.random((total, 1)) < 0.03)
    points = 40.0 * np.cumsum(steps, axis=0) / PRIVACY.eps_per_m
    if len(space.coordinates) == 2 and space == SPACES["sphere"]:
        points = np.array([60.17, 24.94]) + np.clip(points / 111_195.0, -20.0, 20.0)
    offsets = np.cumsum([0, *lengths])
    at_s = [START_S + np.cumsum(gaps[a:b]) for a, b in pairwise(offsets)]
    return Log(points, np.concatenate([[], *at_s]), offsets)


def source_of(kind: str, m: PredictiveMechanism, log: Log, seed: int) -> dict[str, Any]:
    """Where uniforms come from, as `sanitize` is told."""
    if kind == "given":
        return {"uniforms": uniforms(m, len(log.at_s), seed)}
    if kind == "seeded":
        return {"draws": SeededDraws(seed)}
    return {"draws": KeyedDraws(KEY), "users": [f"user {i}" for i in range(len(log.offsets) - 1)]}


def in_pieces(m: PredictiveMechanism, log: Log, cuts: Sequence[float], source: Any) -> list[bytes]:
    """All that comes of a log in so many pieces, down to the last bit."""
    lanes, run, bits = len(log.offsets) - 1, m.run(len(log.offsets) - 1), []
    for low, high in pairwise([0.0, *sorted(cuts), 1.0]):
        rows = [
            np.arange(a + round(low * (b - a)), a + round(high * (b - a)))
            for a, b in pairwise(log.offsets)
        ]
        here, offsets = np.concatenate([np.empty(0, np.int64), *rows]), [0, *map(len, rows)]
        given = dict(source)
        if "uniforms" in given:
            given["uniforms"] = given["uniforms"][here]
        out = sanitize(m, log.points[here], log.at_s[here], np.cumsum(offsets), run=run, **given)
        assert out.run is not None
        assert len(out.spent) == lanes
        bits += all_bits(out)
        run = out.run
    if "draws" in source and isinstance(source["draws"], SeededDraws):
        bits.append(source["draws"].uniforms(1).tobytes())  # the next number is the same, too
    return bits


def all_bits(out: Sanitized) -> list[bytes]:
    names = ("value", "released", "hard", "eps_test", "eps_noise", "threshold", "cost", "spent")
    return [getattr(out, name).tobytes() for name in names] + [
        field.tobytes() for field in out.run or ()
    ]


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Calls something with nothing stepped ahead."""

    def call(something: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(stretches, "FEW_LANES", 0)
            return something()

    return call


@pytest.fixture
def always_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks ahead however often reports are hard."""
    possible = stretches.Foresight.is_possible
    monkeypatch.setattr(stretches.Foresight, "pays", possible)


@pytest.mark.usefixtures("always_ahead")
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_whatever_is_stepped_ahead_has_the_bits_of_the_loop(
    data: st.DataObject, one_by_one: Callable[[Callable[[], Any]], Any]
) -> None:
    place = data.draw(st.sampled_from(sorted(SPACES)))
    m = mechanisms(place)[data.draw(st.sampled_from(sorted(mechanisms(place))))]
    lengths = data.draw(st.lists(st.integers(0, 150), min_size=1, max_size=5))
    every_s = data.draw(st.sampled_from([1.0, 10.0, 60.0, 600.0]))
    seed = data.draw(st.integers(0, 1000))
    kind = data.draw(st.sampled_from(["given", "seeded", "keyed"]))
    cuts = data.draw(st.lists(st.floats(0.0, 1.0), max_size=2))
    log = dense_log(m.space, lengths, every_s, seed)

    def run() -> list[bytes]:
        return in_pieces(m, log, cuts, source_of(kind, m, log, seed))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stretches, "REPORTS", data.draw(st.sampled_from([1, 5, 64, 4096])))
        patched.setattr(stretches, "_FIRST_STEPS", data.draw(st.sampled_from([1, 7, 64])))
        patched.setattr(batch, "POINTS", data.draw(st.sampled_from([9, 100, 360_000])))
        steps = data.draw(st.sampled_from([3, 20, 512]))
        for module in (batch, stretches):
            patched.setattr(module, "STEPS", steps)
        ahead = run()
        # The chunks of the loop are the same: where lanes are left a seed's numbers go on.
        assert one_by_one(run) == ahead


@pytest.mark.usefixtures("always_ahead")
@pytest.mark.parametrize("name", mechanisms("sphere"))
def test_every_mechanism_has_the_bits_of_the_loop(
    name: str, one_by_one: Callable[[Callable[[], Any]], Any]
) -> None:
    m = mechanisms("sphere")[name]
    log = dense_log(m.space, [150, 10, 80], 20.0, 4)

    def run() -> list[bytes]:
        return in_pieces(m, log, [], {"draws": SeededDraws(1)})

    assert stretches.can_be_foreseen(m)
    assert run() == one_by_one(run)


def steps_of(monkeypatch: pytest.MonkeyPatch, something: Callable[[], Any]) -> int:
    """How often the private half of the step is called."""
    calls = 0

    def counted(*given: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return decide(*given, **options)

    with monkeypatch.context() as patched:
        for module in (batch, stretches):
            patched.setattr(module, "decide", counted)
        something()
    return calls


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        *((name, [4000]) for name in ("whole day", "quiet hours", "steady", "reports")),
        *((name, [4000]) for name in ("utility", "utility, skip", "rate, skip, predict")),
        ("whole day", [2000] * 12),
        ("whole day", [4000, *[3] * 200]),  # few are left when the others have ended
    ],
)
def test_reports_of_a_dense_log_are_stepped_together(
    name: str, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the tests above would compare the loop with itself.
    m = mechanisms("sphere")[name]
    log = dense_log(m.space, lengths, 1.0, 2)
    steps = steps_of(monkeypatch, lambda: sanitize(m, *log, seed=1))
    assert steps < max(lengths) / 10


def test_many_lanes_and_sparse_ones_go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    m = mechanisms("sphere")["whole day"]
    many = dense_log(m.space, [20] * (stretches.FEW_LANES + 1), 1.0, 2)
    assert steps_of(monkeypatch, lambda: sanitize(m, *many, seed=1)) == 20
    sparse = dense_log(m.space, [40] * 9, 7200.0, 2)
    assert steps_of(monkeypatch, lambda: sanitize(m, *sparse, seed=1)) == 40


@pytest.mark.usefixtures("always_ahead")
@pytest.mark.parametrize("field", Run._fields)
def test_a_run_that_is_foreseen_wrongly_is_not_used(
    field: str,
    one_by_one: Callable[[Callable[[], Any]], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = mechanisms("plane")["whole day"]
    log = dense_log(m.space, [60, 40], 20.0, 4)
    foresee = stretches._foresee

    def wrongly(*given: Any) -> tuple[Run, Prepared]:
        foreseen, _ = foresee(*given)
        numbers, later = getattr(foreseen, field).copy(), given[3].place > 0
        numbers[later] = ~numbers[later] if numbers.dtype == np.bool_ else numbers[later] + 1
        foreseen = foreseen._replace(**{field: numbers}).frozen()
        return foreseen, prepare(m, foreseen, given[4])

    def run() -> list[bytes]:
        return in_pieces(m, log, [], {"draws": SeededDraws(1)})

    right = one_by_one(run)
    monkeypatch.setattr(stretches, "_foresee", wrongly)
    assert run() == right
    # The control: if it were used, the bits would tell.
    monkeypatch.setattr(stretches, "_differ", lambda one, other: np.zeros(len(one), np.bool_))
    assert run() != right


def test_what_came_after_a_surprise_would_be_noticed(
    one_by_one: Callable[[Callable[[], Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    m = mechanisms("sphere")["whole day"]
    log = dense_log(m.space, [600], 20.0, 4)

    def run() -> list[bytes]:
        return in_pieces(m, log, [], {"draws": SeededDraws(1)})

    right = one_by_one(run)
    assert run() == right
    monkeypatch.setattr(stretches, "_differ", lambda one, other: np.zeros(len(one), np.bool_))
    assert run() != right


@pytest.mark.usefixtures("always_ahead")
def test_what_fails_only_ahead_fails_nobody(
    one_by_one: Callable[[Callable[[], Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    m = mechanisms("plane")["whole day"]
    log = dense_log(m.space, [60, 40], 20.0, 4)

    def run() -> list[bytes]:
        return in_pieces(m, log, [], source_of("keyed", m, log, 1))

    def fails(*given: Any) -> Any:
        raise PartError("noise too large, in a report that will not be made")

    right = one_by_one(run)
    monkeypatch.setattr(stretches, "_foresee", fails)
    assert run() == right


def test_a_report_that_really_fails_fails_the_batch(
    one_by_one: Callable[[Callable[[], Any]], Any],
) -> None:
    m = mechanisms("sphere")["whole day"]
    log = dense_log(m.space, [300], 1.0, 4)
    log.at_s[-20:] += 3e10  # a year in which nobody knows the clock
    for call in (lambda run: run(), one_by_one):
        with pytest.raises(PointError, match="1800 to 2500"):
            call(lambda: sanitize(m, *log))


class MyParrot(Parrot):
    """A part of a user's own, whatever it derives from."""


def test_parts_of_a_users_own_are_asked_once_for_each_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def own_plan(run: Run, at_s: Floats) -> Plan:
        asked.append(len(at_s))
        return Plan(1e-6, 1e-5, 1e6)

    def own_guess(past: Sequence[Past], at_s: float) -> Sequence[float] | None:
        return past[0].value if past else None

    asked: list[int] = []
    ours = mechanisms("plane")["utility"]
    assert stretches.can_be_foreseen(ours)
    for own in (
        {"budget": own_plan},
        {"prediction": MyParrot()},
        {"prediction": lift(own_guess)},
        {"space": NoNoise(ours.space)},
        {"skip": lambda run, at_s, plan: at_s > 0.0},
        {"decision": lambda space, x, guess, eps, threshold, u: u[:, 0] < 0.5},
        {"window": type("Mine", (NoReset,), {})()},
    ):
        assert not stretches.can_be_foreseen(replace(ours, **own))
    m = replace(ours, budget=own_plan)
    asked.clear()
    log = dense_log(m.space, [100, 50], 1.0, 2)
    sanitize(m, *log)
    assert asked == [2] * 50 + [1] * 50


def test_draws_of_a_users_own_are_asked_step_by_step() -> None:
    class Counting(SeededDraws):
        asked: tuple[int, ...] = ()

        def uniforms(self, count: int, out: Floats | None = None) -> Floats:
            self.asked = (*self.asked, count)
            return super().uniforms(count, out)

    m = mechanisms("plane")["whole day"]
    log, draws = dense_log(m.space, [100, 50], 1.0, 2), Counting(1)
    sanitize(m, *log, draws=draws)
    assert draws.asked == (2 * m.uniforms,) * 50 + (m.uniforms,) * 50
