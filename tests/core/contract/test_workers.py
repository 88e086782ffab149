"""Threads as workers: the same bits, the same errors, and none that goes on afterwards."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import (
    Day,
    Days,
    Ensemble,
    Every,
    KeyedDraws,
    Linear,
    NoiseFirst,
    ParameterError,
    PartError,
    Past,
    Plane,
    PointError,
    PredictiveMechanism,
    Privacy,
    SkipBySpeed,
    Sphere,
    fixed_rate,
    fixed_utility,
    lift,
    sanitize,
    whole_day,
)
from hereish.core import batch
from hereish.core.batch_draws import BatchDraws
from hereish.core.pacing import Paced
from hereish.core.step import decide, prepare
from hereish.core.stretches import step_ahead
from hereish.core.workers import Workers, shares
from tests.core.contract.test_same_bits import WORLDS, batch_of, build
from tests.support.whole_days import PRIVACY, ST_JOHNS, TOTAL, Traces, people, presets, uniforms

WORKERS = (2, 3, 7)
# Ragged, with empty traces, and some that go on for long after the others; and all alike.
RAGGED = [0, 1, 30, 1, 2, 0, 7, 19, 19, 3, 12, 0, 90, 5, 5, 5, 33, 64, 8, 8, 8, 8, 41, 2, 17]
LENGTHS = {"ragged": RAGGED, "alike": [14] * 23}
ACCURACY_M = 9.0 * Sphere().c_noise(0.9) / TOTAL
LIMITED = Day("UTC") & Days(7).within(2.0 * PRIVACY.level)
MECHANISMS: dict[str, PredictiveMechanism] = {
    **{name: m for name, m in presets(Sphere()).items() if name != "steady"},
    "fixed utility": fixed_utility(PRIVACY, ACCURACY_M),
    "fixed utility, predict": fixed_utility(PRIVACY, ACCURACY_M, on_exhausted="predict"),
    "fixed utility on a plane": build("fixed utility", WORLDS["plane"]),
    "fixed rate": fixed_rate(PRIVACY, 20),
    "fixed rate by the hour": fixed_rate(PRIVACY, 20, window=Every(timedelta(hours=1))),
    "skip": fixed_rate(PRIVACY, 20, skip=SkipBySpeed(5.0, 900.0, since="tested")),
    "limits": fixed_rate(PRIVACY, 20, window=LIMITED),
    "a line": fixed_utility(PRIVACY, ACCURACY_M, prediction=Linear()),
    "ensemble": fixed_utility(PRIVACY, ACCURACY_M, prediction=Ensemble()),
    "noise first": replace(whole_day(PRIVACY, window=ST_JOHNS), decision=NoiseFirst()),
}


@pytest.fixture(autouse=True)
def no_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are threads here, as where another thread keeps this process from being forked."""
    monkeypatch.setattr(batch, "can_fork", lambda: False)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the threads that have decided a step, or several at once."""
    seen: set[str] = set()

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            seen.add(threading.current_thread().name)
            return call(*given, **named)

        return noted

    monkeypatch.setattr(batch, "decide", noting(decide))
    monkeypatch.setattr(batch, "step_ahead", noting(step_ahead))
    return seen


def sources(m: PredictiveMechanism, data: Traces) -> dict[str, dict[str, Any]]:
    """Each source of numbers that gives the same ones again."""
    users = [f"user {i}" for i in range(len(data.offsets) - 1)]
    return {
        "seed": {"seed": 5},
        "key": {"draws": KeyedDraws(bytes(32)), "users": users},
        "uniforms": {"uniforms": uniforms(m, len(data.at_s))},
    }


def bits(out: hereish.Sanitized) -> dict[str, bytes]:
    """All that was released, what it cost, and where each trace stands, bit for bit."""
    columns = ("value", "released", "hard", "eps_test", "eps_noise", "threshold", "spent", "cost")
    run = {} if out.run is None else out.run._asdict()
    found = {name: getattr(out, name) for name in columns} | run
    return {name: np.ascontiguousarray(column).tobytes() for name, column in found.items()}


def of_case(m: PredictiveMechanism, lengths: Sequence[int]) -> Traces:
    return people(m.space, lengths)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_any_number_of_workers_gives_the_same_bits(
    name: str, lengths: str, threads: set[str]
) -> None:
    m = MECHANISMS[name]
    data = of_case(m, LENGTHS[lengths])
    traces = len(data.offsets) - 1
    for source, given in sources(m, data).items():
        alone = sanitize(m, *data, **given, run=m.run(traces))
        assert {"hard", "easy"} <= set(alone.kind)
        for workers in WORKERS:
            threads.clear()
            out = sanitize(m, *data, **given, run=m.run(traces), workers=workers)
            assert bits(out) == bits(alone), f"{source}, {workers} workers"
            assert len(threads) > 1, "or nothing was compared"
            plain = sanitize(m, *data, **given, workers=workers)
            assert plain.value.tobytes() == alone.value.tobytes(), f"{source}, {workers} workers"


def test_the_cases_are_refused_and_left_too(small_parts: None) -> None:
    # Of a seed, numbers are drawn for lanes that have ended until most of a block has: otherwise
    # what follows in the stream would be the same with and without.
    m = MECHANISMS["fixed utility on a plane"]
    data = of_case(m, RAGGED)
    alone = sanitize(m, *data, seed=5)
    assert 0.2 < 1.0 - alone.released.mean() < 0.9
    whole = sum(m.uniforms * length for length in RAGGED)
    draws = hereish.SeededDraws(5)
    sanitize(m, *data, draws=draws)
    assert draws.drawn < whole
    for workers in WORKERS:
        others = hereish.SeededDraws(5)
        sanitize(m, *data, draws=others, workers=workers)
        assert others.drawn == draws.drawn


@pytest.mark.parametrize("name", ["fixed rate", "whole day"])
def test_blocks_of_the_usual_size_give_the_same_bits(name: str, threads: set[str]) -> None:
    m = MECHANISMS[name]
    lengths = np.random.default_rng(3).integers(0, 5, batch.LANES + 3000)
    data = people(m.space, lengths.tolist())
    for given in sources(m, data).values():
        alone = sanitize(m, *data, **given, run=m.run(len(lengths)))
        for workers in WORKERS:
            threads.clear()
            out = sanitize(m, *data, **given, run=m.run(len(lengths)), workers=workers)
            assert bits(out) == bits(alone)
            assert len(threads) > 1


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("source", ["seed", "key", "uniforms"])
def test_a_share_that_is_stepped_with_the_numbers_of_another_would_be_found(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = MECHANISMS["fixed rate"]
    data = of_case(m, RAGGED)
    given = sources(m, data)[source]
    alone = sanitize(m, *data, **given)
    if source == "seed":
        # Each worker draws for itself, in whatever order they come.
        monkeypatch.setattr(BatchDraws, "seeded", property(lambda self: False))
    else:

        def shifted(counts: Any, workers: int) -> list[slice]:
            right = shares(counts, workers)
            return [right[0], *(slice(s.start - 1, s.stop) for s in right[1:])]

        monkeypatch.setattr(batch, "shares", shifted)
        with pytest.raises((AssertionError, ValueError)):
            assert bits(sanitize(m, *data, **given, run=m.run(25), workers=3)) == bits(
                sanitize(m, *data, **given, run=m.run(25))
            )
        return
    assert bits(sanitize(m, *data, **given, workers=3)) != bits(alone)


def test_secure_numbers_are_drawn_by_each_worker(small_parts: None, threads: set[str]) -> None:
    m = MECHANISMS["fixed rate"]
    points = np.tile([60.17, 24.94], (200, 1))
    out = sanitize(m, points, np.zeros(200), np.arange(201), workers=4)
    assert out.private
    assert len(threads) > 1
    assert len(np.unique(out.value, axis=0)) == 200, "and none twice"


def test_bad_input_is_refused_with_the_same_words(small_parts: None) -> None:
    m = MECHANISMS["fixed rate"]
    data = of_case(m, RAGGED)
    points, at_s = data.points.copy(), data.at_s.copy()
    points[200, 0], at_s[300] = 91.0, np.nan
    bad: list[tuple[Any, dict[str, Any]]] = [
        ((points, data.at_s, data.offsets), {}),
        ((data.points, at_s, data.offsets), {}),
        ((data.points, data.at_s, data.offsets[:-1]), {}),
        ((data.points[:, :1], data.at_s, data.offsets), {}),
        (data, {"seed": "one"}),
        (data, {"users": ["ann"]}),
        (data, {"uniforms": np.zeros((3, 2))}),
        (data, {"run": m.run(3)}),
    ]
    for given, named in bad:
        with pytest.raises(hereish.HereishError) as alone:
            sanitize(m, *given, **named)
        with pytest.raises(type(alone.value)) as several:
            sanitize(m, *given, **named, workers=3)
        assert str(several.value) == str(alone.value)


def noise_that_grows_too_large() -> PredictiveMechanism:
    """Noise grows as the budget goes, and in each lane at another step the grid is too fine."""
    m = whole_day(PRIVACY, space=Plane(4e-7), window=ST_JOHNS)
    assert isinstance(m.budget, Paced)
    return replace(m, budget=replace(m.budget, smallest_eps=0.0))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("source", ["seed", "key", "uniforms"])
def test_a_step_that_fails_fails_the_call_with_the_same_words(source: str) -> None:
    m = noise_that_grows_too_large()
    data = of_case(m, RAGGED)
    given, before = sources(m, data)[source], threading.enumerate()
    with pytest.raises(PartError, match="too large for the grid") as alone:
        sanitize(m, *data, **given)
    for workers in WORKERS:
        with pytest.raises(PartError) as several:
            sanitize(m, *data, **given, workers=workers)
        assert str(several.value) == str(alone.value)
        assert several.value.__context__ is None
    assert threading.enumerate() == before


def test_a_call_that_failed_returns_nothing_even_if_another_try_would_not(
    small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, tries = MECHANISMS["fixed rate"], []
    data = of_case(m, RAGGED)

    def failing(*given: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            tries.append(given)
            raise PartError("the first time; nothing was released")
        return prepare(*given)

    monkeypatch.setattr(batch, "prepare", failing)
    with pytest.raises(PartError, match="the first time"):
        sanitize(m, *data, workers=2)
    assert tries


def test_times_that_no_window_knows_are_refused_with_the_same_words(small_parts: None) -> None:
    m = whole_day(PRIVACY, window=ST_JOHNS)
    data = of_case(m, RAGGED)
    at_s = np.where(data.at_s >= data.at_s[60], data.at_s + 2e10, data.at_s)
    at_s = np.concatenate([np.sort(at_s[data.rows(i)]) for i in range(len(RAGGED))])
    for workers in (1, *WORKERS):
        with pytest.raises(PointError, match="outside the years 1800 to 2500"):
            sanitize(m, data.points, at_s, data.offsets, seed=1, workers=workers)


@pytest.mark.usefixtures("small_parts", "interruptible")
def test_an_interrupt_ends_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    m, before = MECHANISMS["fixed rate"], threading.enumerate()
    data = of_case(m, RAGGED)
    sent: list[bool] = []

    def interrupting(*given: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() and not sent:
            sent.append(True)
            _thread.interrupt_main()
        return decide(*given, **named)

    monkeypatch.setattr(batch, "decide", interrupting)
    with pytest.raises(KeyboardInterrupt):
        sanitize(m, *data, workers=3)
    assert sent
    for thread in threading.enumerate():
        if thread not in before:  # it was just being started
            thread.join(30.0)
            assert not thread.is_alive()


def test_parts_and_draws_of_a_users_own_are_called_by_one(small_parts: None) -> None:
    seen: set[int] = set()

    def guess(past: Sequence[Past], at_s: float) -> Sequence[float] | None:
        seen.add(threading.get_ident())
        return past[0].value if past else None

    class Own:
        private = False

        def uniforms(self, count: int, out: Any = None) -> Any:
            seen.add(threading.get_ident())
            return np.full(count, 0.5)

    own = fixed_rate(PRIVACY, 20, prediction=lift(guess))
    data = of_case(own, RAGGED)
    one = sanitize(own, *data, seed=1)
    assert bits(sanitize(own, *data, seed=1, workers=3)) == bits(one)
    sanitize(MECHANISMS["fixed rate"], *data, draws=Own(), workers=3)
    members = (hereish.Parrot(), lift(guess))
    mixed = fixed_utility(PRIVACY, ACCURACY_M, prediction=Ensemble(members=members))
    sanitize(mixed, *data, seed=1, workers=3)
    assert seen == {threading.get_ident()}


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2", None])
def test_workers_are_a_whole_number(workers: Any) -> None:
    with pytest.raises(ParameterError, match="workers must be a whole number from 1 on"):
        sanitize(MECHANISMS["fixed rate"], np.zeros((1, 2)), [0.0], [0, 1], workers=workers)


def test_nothing_to_do_and_one_trace(small_parts: None) -> None:
    m = MECHANISMS["fixed rate"]
    assert len(sanitize(m, np.empty((0, 2)), [], [0], workers=3).value) == 0
    assert len(sanitize(m, np.zeros((2, 2)), [0.0, 1.0], [0, 2], seed=1, workers=3).value) == 2


def test_workers_have_the_callers_settings_and_end() -> None:
    before = threading.enumerate()
    with np.errstate(divide="raise"), Workers(3) as workers:
        found = workers.each(lambda number, item: (number, item, np.geterr()["divide"]), "abc")
        assert found == [(0, "a", "raise"), (1, "b", "raise"), (2, "c", "raise")]
    assert threading.enumerate() == before


def test_shares_are_of_about_as_many_reports_and_leave_out_no_lane() -> None:
    rng = np.random.default_rng(1)
    for lanes in (1, 2, 3, 10, 1000):
        for workers in (1, 2, 3, 7):
            counts = -np.sort(-rng.integers(1, 100, lanes))
            parts = shares(counts, min(workers, lanes))
            assert np.concatenate([np.arange(lanes)[part] for part in parts]).tolist() == list(
                range(lanes)
            )
            assert len(parts) <= workers
            if lanes == 1000:
                sums = [counts[part].sum() for part in parts]
                assert len(parts) == workers
                assert max(sums) - min(sums) <= 2 * counts[0]


def test_privacy_is_of_the_call_whatever_the_workers() -> None:
    m = fixed_rate(Privacy(level=1.0, radius_m=100), 10)
    given = (m, np.zeros((4, 2)), np.zeros(4), [0, 2, 4])
    assert sanitize(*given, workers=2).guarantee == sanitize(*given).guarantee
    assert not sanitize(*given, seed=1, workers=2).private


def test_points_where_coordinates_break_give_the_same_bits(small_parts: None) -> None:
    world = WORLDS["wide sphere"]
    m = build("fixed rate", world)
    x, at_s, offsets, u = batch_of(world, m, RAGGED)
    alone = sanitize(m, x, at_s, offsets, uniforms=u)
    for workers in WORKERS:
        assert bits(sanitize(m, x, at_s, offsets, uniforms=u, workers=workers)) == bits(alone)
