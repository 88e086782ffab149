"""Draws, attacked: the same numbers twice, numbers that are no noise, siblings with one key.

Each search looks for a leak that was there once; the tests say which.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish import (
    AlwaysNoise,
    KeyedDraws,
    Line,
    PartError,
    Plan,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    Sphere,
    sanitize,
)
from hereish.core.noise import sphere_angle
from hereish.core.step import step
from hereish.core.types import Floats, PerLane

steady = settings(derandomize=True, deadline=None, max_examples=60)
KEY = bytes(range(32))
START = datetime(2026, 5, 5, 12, tzinfo=UTC)
PRIVACY = Privacy(math.log(10.0), 100.0)


# Two budgets, one key: releases x + n/eps and x + n/eps' of one secret give it away.


class Manager:
    """A plain class: its repr is an address, and its settings are nowhere to be seen."""

    def __init__(self, eps: float) -> None:
        self.eps = eps

    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, self.eps, -math.inf)


@dataclass(frozen=True)
class Reserved:
    """A dataclass that does not show its setting."""

    eps: float = field(repr=False)

    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, self.eps, -math.inf)


class Polite(Manager):
    """Has a repr, which leaves out what counts."""

    def __repr__(self) -> str:
        return "Polite()"


def closure(eps: float) -> Callable[[Run, Floats], Plan]:
    def manager(run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, eps, -math.inf)

    return manager


def planned(eps: float, run: Run, at_s: Floats, /) -> Plan:
    return Plan(0.0, eps, -math.inf)


def default(eps: float) -> Callable[[Run, Floats], Plan]:
    return lambda run, at_s, eps=eps: Plan(0.0, eps, -math.inf)  # type: ignore[misc]


def local_class(given: float) -> Any:
    class Local:
        eps = given

        needs_history = True

        def __call__(self, run: Run, at_s: Floats, /) -> Plan:
            return Plan(0.0, self.eps, -math.inf)

    return Local()


def class_attribute(given: float) -> Any:
    Shared.eps = given
    return Shared()


class Shared:
    """Its setting is said of the class."""

    eps = 0.0

    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, self.eps, -math.inf)


MANAGERS: dict[str, Callable[[float], Any]] = {
    "plain class": Manager,
    "dataclass that hides a field": Reserved,
    "class with a repr of its own": Polite,
    "closure": closure,
    "partial": lambda eps: partial(planned, eps),
    "default": default,
    "bound method": lambda eps: Manager(eps).__call__,
    "local class": local_class,
}


@pytest.mark.parametrize("make", MANAGERS.values(), ids=MANAGERS.keys())
def test_two_budgets_of_one_key_never_share_their_noise(make: Callable[[float], Any]) -> None:
    errors = []
    for day in range(20):
        secret, at = 1e4 + 1000.0 * day, START + timedelta(days=day)
        one, other = (
            PredictiveMechanism(PRIVACY, make(eps), Line())
            .session(draws=KeyedDraws(KEY), user="ann")
            .report(secret, at)
            for eps in (0.001, 0.002)
        )
        solved = (one.cost * one.value - other.cost * other.value) / (one.cost - other.cost)
        errors.append(abs(solved - secret))
    assert np.median(errors) > 10.0, "two lines of algebra give the place away"


@pytest.mark.parametrize("make", MANAGERS.values(), ids=MANAGERS.keys())
def test_no_state_and_no_run_goes_on_under_a_sibling(make: Callable[[float], Any]) -> None:
    one, other = (PredictiveMechanism(PRIVACY, make(eps), Line()) for eps in (0.001, 0.002))
    session = one.session()
    session.report(0.0, START)
    hereish.Session.from_state(one, session.to_state())
    with pytest.raises(hereish.StateError, match="another mechanism"):
        hereish.Session.from_state(other, session.to_state())
    run = sanitize(one, [0.0], [0.0], [0, 1], run=one.run(1)).run
    assert run is not None
    assert sanitize(one, [0.0], [1.0], [0, 1], run=run).released.all()
    with pytest.raises(hereish.ParameterError, match="other settings"):
        sanitize(other, [0.0], [1.0], [0, 1], run=run)


class Scaled(Plane):
    """A space whose setting is hidden from its dataclass: the same draws mean other noise."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        object.__setattr__(self, "scale", scale)

    def noise(self, x: Floats, eps: PerLane, u: Floats) -> Floats:
        return super().noise(x, eps / self.scale, u)  # type: ignore[attr-defined]


def test_a_space_that_hides_a_setting_does_not_share_its_noise() -> None:
    errors = []
    for day in range(20):
        one, other = (
            PredictiveMechanism(PRIVACY, AlwaysNoise(0.001), Scaled(scale))
            .session(draws=KeyedDraws(KEY), user="ann")
            .report((1e4, 0.0), START + timedelta(days=day))
            .value[0]
            for scale in (1.0, 2.0)
        )
        errors.append(abs(2.0 * one - other - 1e4))
    assert np.median(errors) > 10.0


class Opaque:
    """Holds what nobody can show."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(1)

    needs_history = True

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(0.0, 0.001, -math.inf)


def test_parts_that_cannot_show_their_settings_are_refused_where_they_count() -> None:
    m = PredictiveMechanism(PRIVACY, Opaque(), Line())
    assert m.session().report(0.0, START).kind == "hard", "elsewhere they are welcome"
    with pytest.raises(PartError, match="cannot be shown"):
        m.session(draws=KeyedDraws(KEY), user="ann")
    with pytest.raises(PartError, match="cannot be shown"):
        sanitize(m, [0.0], [0.0], [0, 1], draws=KeyedDraws(KEY), users=["ann"])
    with pytest.raises(PartError, match="cannot be shown"):
        m.session().to_state()
    first = sanitize(m, [0.0], [0.0], [0, 1], run=m.run(1)).run
    assert first is not None
    assert sanitize(m, [0.0], [1.0], [0, 1], run=first).released.all(), "its own run goes on"
    sibling = PredictiveMechanism(PRIVACY, Opaque(), Line())
    with pytest.raises(hereish.ParameterError, match="other settings"):
        sanitize(sibling, [0.0], [1.0], [0, 1], run=first)


@steady
@given(st.data())
def test_whatever_a_step_decides_differently_is_drawn_differently(data: st.DataObject) -> None:
    """Any two steps that differ in place, time, guess, cost or threshold share no uniform."""
    draws, m = KeyedDraws(KEY), PredictiveMechanism(PRIVACY, AlwaysNoise(0.001), Line())
    number = st.sampled_from([0.0, 1.0, -1.0, 1e-9, 0.5, math.inf, -math.inf, math.nan, 3e3])
    rows = [data.draw(st.tuples(*[number] * 6, st.integers(0, 2))) for _ in range(2)]
    keys = [tuple(repr(each + 0.0) for each in row) for row in rows]
    seen = []
    for at_s, x, guess, eps_test, eps_noise, threshold, reports in rows:
        run = m.run(1)._replace(reports=np.array([reports]))
        prepared = hereish.core.step.Prepared(
            run=run,
            at_s=np.array([at_s]),
            guess=np.array([[guess]]),
            eps_test=eps_test,
            eps_noise=np.array([eps_noise]),
            threshold=threshold,
            cost_easy=0.0,
            cost_hard=0.0,
            known=np.array([True]),
            fits=np.array([True]),
            all_tested=True,
        )
        begun = draws.begin(m, ["ann"])
        seen.append(draws.for_reports(m, begun, prepared, np.array([[x]])).tolist())
    assert (seen[0] == seen[1]) == (keys[0] == keys[1])


def test_names_that_run_into_each_other_are_kept_apart() -> None:
    draws = KeyedDraws(KEY)
    one, x = np.ones(1, dtype=np.int64), np.ones((1, 1))
    names = ["a", "ab", "b", "", "\0", "a\0", "\ud800", "a" * 1000]
    mechanisms = [b"", b"a", b"ab"]
    drawn = {
        (name, m): draws.derive([name], one, one, np.ones(1), x, 2, None, m).tobytes()
        for name in names
        for m in mechanisms
    }
    assert len(set(drawn.values())) == len(drawn)


# The same secure numbers twice, if a signal handler draws in the middle of a draw.


def interrupted(draw: Callable[[], Floats], at: int, handler: Callable[[], None]) -> Floats:
    """Draw, with a handler that runs before the bytecode of that number, as signals do."""
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if frame.f_code is not hereish.SecureDraws.uniforms.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == at:
                handler()  # what it calls is not traced
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for this when tracing begins
    sys.settrace(trace)
    try:
        return draw()
    finally:
        sys.settrace(before)


def test_a_signal_handler_that_draws_never_gets_the_numbers_of_whom_it_interrupts() -> None:
    """Before every bytecode of a draw, from a full buffer and from one that is used up."""
    for buffered in (4, 508, 512):
        for at in range(1, 150):
            draws, seen = hereish.SecureDraws(), []
            seen.append(draws.uniforms(128))
            for _ in range((buffered - 128) // 4):
                seen.append(draws.uniforms(4))  # noqa: PERF401  # one after the other
            handled: list[Floats] = []
            ours = interrupted(
                lambda draws=draws: draws.uniforms(4),  # type: ignore[misc]
                at,
                lambda draws=draws, handled=handled: handled.append(draws.uniforms(4)),  # type: ignore[misc]
            )
            after = [draws.uniforms(4) for _ in range(4)]
            together = np.concatenate([*seen, ours, *handled, *after])
            assert len(np.unique(together)) == len(together)
            if not handled:
                break
        assert at > 50, "there was something to interrupt"


# Numbers that are no uniforms.


@dataclass
class Handed:
    """Draws of one's own."""

    numbers: Any
    private = True

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        given = np.resize(np.asarray(self.numbers, dtype=np.float64), count)
        if out is None:
            return given
        out[:] = given
        return out


BAD = [0.0, 1.0, -0.25, 1.5, math.nan, math.inf, -0.0]


@pytest.mark.parametrize("space", [Sphere(), Plane(), Line()], ids=repr)
@pytest.mark.parametrize("bad", BAD)
def test_draws_outside_the_open_interval_release_nothing(bad: float, space: Any) -> None:
    m = PredictiveMechanism(PRIVACY, AlwaysNoise(0.001), space)
    secret = (60.17, 24.94)[: m.dim]
    for place in range(m.uniforms):
        numbers = [0.5] * m.uniforms
        numbers[place] = bad
        session = m.session(draws=Handed(numbers))
        with pytest.raises(PartError, match="strictly between 0 and 1"):
            session.report(secret, START)
        assert session.spent == 0.0
        with pytest.raises(PartError, match="strictly between 0 and 1"):
            sanitize(m, np.array([secret]), [0.0], [0, 1], draws=Handed(numbers))


def test_draws_of_the_wrong_number_release_nothing() -> None:
    @dataclass
    class Few(Handed):
        def uniforms(self, count: int, out: Floats | None = None) -> Floats:
            return np.full(count - 1, 0.5)

    m = PredictiveMechanism(PRIVACY, AlwaysNoise(0.001))
    with pytest.raises(PartError, match="draws must give"):
        m.session(draws=Few([0.5])).report((60.0, 25.0), START)
    with pytest.raises(PartError, match="draws must give"):
        step(m, m.run(1), np.zeros((1, 2)), np.zeros(1), np.full((1, 4), 0.5, dtype=np.float32))


@steady
@given(
    st.floats(-12.0, 12.0),
    st.lists(st.tuples(*[st.floats(-65.0, -1e-9)] * 2), min_size=1, max_size=8),
)
def test_the_noise_on_the_globe_is_always_found(
    log_k: float, pairs: list[tuple[float, float]]
) -> None:
    """For any eps and any uniforms that there are: an angle, or an error, never a wrong place."""
    u1, u2 = np.clip(np.exp2(np.array(pairs)), 2.0**-65, 1.0 - 2.0**-53).T
    angle = sphere_angle(10.0**log_k, np.ascontiguousarray(u1), np.ascontiguousarray(u2))
    assert ((angle > 0.0) & (angle <= math.pi)).all()


def test_a_solver_that_does_not_converge_raises() -> None:
    with pytest.raises(ArithmeticError), np.errstate(all="ignore"):
        sphere_angle(1.0, np.array([math.nan]), np.array([0.5]))


def test_draws_that_do_not_fill_what_they_are_given_are_not_taken_for_noise() -> None:
    """What lay in memory was released as noise, the same for a whole trace."""

    class Unfilled:
        private = True

        def uniforms(self, count: int, out: Floats | None = None) -> Floats:
            return hereish.SecureDraws().uniforms(count)

    m = hereish.independent(PRIVACY, reports=30, space=Plane())
    points = np.cumsum(np.random.default_rng(1).normal(0.0, 50.0, (30, 2)), axis=0)
    for _ in range(20):
        sanitize(m, points, np.arange(30.0), [0, 30])
        out = sanitize(m, points, np.arange(30.0), [0, 30], draws=Unfilled())
        assert (np.ptp(out.value - points, axis=0) > 100.0).all()
