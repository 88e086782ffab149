"""Mechanisms on vectors: live equals batch, pieces equal the whole, states go on, secrets stay."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from hereish import (
    BudgetExhaustedError,
    Every,
    KeyedDraws,
    LaplaceTest,
    NoiseFirst,
    Parrot,
    Plan,
    PointError,
    PredictiveMechanism,
    Privacy,
    Run,
    Session,
    Vector,
    fixed_rate,
    sanitize,
    whole_day,
)
from hereish.core import batch
from hereish.core.types import Floats
from hereish.testing import FixedDraws
from tests.support.laws import uniforms

PRIVACY = Privacy(6.0, 1.0)
STEPS, TRACES = 24, 3


def fixed_plan(run: Run, at_s: Floats, /) -> Plan:
    return Plan(0.05, 0.2, 4.0)


def mechanisms() -> dict[str, PredictiveMechanism]:
    hours = Every(timedelta(hours=6))
    found = {}
    for norm in ("l1", "l2", "linf"):
        space = Vector(3, norm, grid=0.1, low=-5.0, high=60.0, sensitivity=1.5)
        for decision in (LaplaceTest(), NoiseFirst()):
            name = f"{norm}, {type(decision).__name__}"
            found[name] = PredictiveMechanism(
                PRIVACY, fixed_plan, space, Parrot(), decision, window=hours, on_exhausted="predict"
            )
        found[f"{norm}, paced"] = whole_day(
            PRIVACY, reports=10, window=hours, space=space, prediction=Parrot()
        )
    found["one number"] = fixed_rate(
        PRIVACY, 12, space=Vector(1, grid=0.5), window=hours, prediction_rate=0.97
    )
    return found


MECHANISMS = mechanisms()


def rooms(m: PredictiveMechanism, seed: int = 1) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    warmth = 20.0 + np.cumsum(rng.normal(0, 0.5, (TRACES * STEPS, m.dim)), axis=0)
    at_s = np.tile(1800.0 * np.arange(STEPS), TRACES)
    return warmth, at_s, uniforms(seed, TRACES * STEPS, m.uniforms)


OFFSETS = [STEPS * i for i in range(TRACES + 1)]


def live(session: Session, x: Floats, at_s: Floats) -> list[tuple[Floats, str, float]]:
    found = []
    for point, second in zip(x, at_s.tolist(), strict=True):
        try:
            report = session.report(point, datetime.fromtimestamp(second, tz=UTC))
        except BudgetExhaustedError:
            found.append((np.full(len(point), np.nan), "", 0.0))
            continue
        found.append((np.reshape(report.value, -1), str(report.kind), report.cost))
    return found


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_session_and_a_batch_with_the_same_uniforms_give_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = MECHANISMS[name]
    x, at_s, u = rooms(m)
    out = sanitize(m, x, at_s, OFFSETS, uniforms=u)
    monkeypatch.setattr(batch, "LANES", 2)
    assert sanitize(m, x, at_s, OFFSETS, uniforms=u).value.tobytes() == out.value.tobytes()
    for first in OFFSETS[:-1]:
        rows = slice(first, first + STEPS)
        found = live(m.session(draws=FixedDraws(u[rows])), x[rows], at_s[rows])
        assert np.array([value for value, _, _ in found]).tobytes() == out.value[rows].tobytes()
        assert [kind for _, kind, _ in found] == out.kind[rows].tolist()
        assert [cost for _, _, cost in found] == out.cost[rows].tolist()
    assert {"hard", "easy"} <= set(out.kind)
    released = out.value[out.released]
    assert np.array_equal(m.space.snap(released), released)
    assert (out.spent <= m.privacy.eps_per_m).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_pieces_are_the_whole_and_a_restored_session_goes_on(name: str) -> None:
    m = MECHANISMS[name]
    x, at_s, u = rooms(m)
    whole = sanitize(m, x, at_s, OFFSETS, uniforms=u)
    run, half = m.run(TRACES), STEPS // 2
    for part in (slice(half), slice(half, STEPS)):
        rows = np.concatenate([np.arange(STEPS)[part] + first for first in OFFSETS[:-1]])
        ends = [half * i for i in range(TRACES + 1)]
        piece = sanitize(m, x[rows], at_s[rows], ends, uniforms=u[rows], run=run)
        assert piece.value.tobytes() == whole.value[rows].tobytes()
        assert piece.run is not None
        run = piece.run
    session = m.session(draws=FixedDraws(u[:half]))
    live(session, x[:half], at_s[:half])
    state = json.loads(json.dumps(session.to_state()))
    restored = Session.from_state(m, state, draws=FixedDraws(u[half:STEPS]))
    later = live(restored, x[half:STEPS], at_s[half:STEPS])
    values = np.array([value for value, _, _ in later])
    assert values.tobytes() == whole.value[half:STEPS].tobytes()


def test_keyed_draws_repeat_a_release_and_no_other() -> None:
    m = MECHANISMS["l2, NoiseFirst"]
    x, at_s, _ = rooms(m)
    draws, users = KeyedDraws(bytes(32)), ["a", "b", "c"]
    once, again = (sanitize(m, x, at_s, OFFSETS, draws=draws, users=users) for _ in range(2))
    assert once.value.tobytes() == again.value.tobytes()
    others = sanitize(m, x, at_s, OFFSETS, draws=draws, users=["d", "e", "f"])
    assert (once.value[once.hard & others.hard] != others.value[once.hard & others.hard]).any()


def test_secrets_beyond_the_bounds_are_released_as_the_bounds_and_not_refused() -> None:
    m = MECHANISMS["l2, NoiseFirst"]
    session = m.session(seed=1)
    report = session.report((1e6, -1e6, 20.0), datetime(2026, 1, 1, tzinfo=UTC))
    assert report.value[:2] == (60.0, -5.0)


def test_a_bad_point_is_refused_without_being_quoted() -> None:
    session = MECHANISMS["l2, NoiseFirst"].session(seed=1)
    with pytest.raises(PointError, match="number 2 is outside") as caught:
        session.report((20.0, 7.654321e250, 21.0), datetime(2026, 1, 1, tzinfo=UTC))
    assert "7.65" not in str(caught.value)
