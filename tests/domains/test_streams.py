"""Streams: live equals batch, pieces equal the whole, and what is learnt stays small and public."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from hereish import (
    Every,
    Month,
    NoiseFirst,
    NoReset,
    ParameterError,
    Parrot,
    PartError,
    PredictiveMechanism,
    Privacy,
    Session,
    Vector,
    independent,
    sanitize,
)
from hereish.core.types import Floats
from hereish.domains import DailyProfile, Follow, SharedOut, StreamNumbers, smart_meter, stream
from hereish.testing import FixedDraws
from tests.support.laws import uniforms

START_S = datetime(2025, 1, 30, tzinfo=UTC).timestamp()
TRACES, STEPS = 3, 60
PRIVACY = Privacy(1.0, 1.0)


def mechanisms() -> dict[str, PredictiveMechanism]:
    day = Every(timedelta(hours=12))
    counts = Vector(5, "l1", 1.0, 0.0, sensitivity=2.0)
    return {
        "one number": stream(PRIVACY, Vector(1, grid=0.5), STEPS),
        "counts": stream(PRIVACY, counts, 24, window=day),
        "euclid": stream(
            PRIVACY, Vector(3, "l2", grid=0.5), 20, window=day, on_exhausted="predict"
        ),
        "meter": smart_meter(Privacy(2.0, 10.0)),
        "meter, wide noise": smart_meter(Privacy(2.0, 100.0), time_zone="America/St_Johns"),
        "meter, month": smart_meter(Privacy(2.0, 1.0), window=Month("UTC"), time_zone="UTC"),
    }


MECHANISMS = mechanisms()


def numbers(m: PredictiveMechanism, seed: int = 1) -> tuple[Floats, Floats, Floats]:
    """Numbers that rest, drift and jump, of the size of the noise and of many times that."""
    rng = np.random.default_rng(seed)
    scale = 60.0 if isinstance(m.prediction, DailyProfile) else 40.0
    jumps = (rng.random((TRACES * STEPS, m.dim)) < 0.1) * rng.normal(0, 20 * scale, (1, m.dim))
    x = 300.0 + np.abs(np.cumsum(jumps + rng.normal(0, 0.02 * scale, jumps.shape), axis=0))
    at_s = np.tile(START_S + 1800.0 * np.arange(STEPS), TRACES)
    return x, at_s, uniforms(seed, TRACES * STEPS, m.uniforms)


OFFSETS = [STEPS * i for i in range(TRACES + 1)]


def live(session: Session, x: Floats, at_s: Floats) -> list[Any]:
    reports = [
        session.report(point, datetime.fromtimestamp(second, tz=UTC))
        for point, second in zip(x, at_s.tolist(), strict=True)
    ]
    return [(np.reshape(each.value, -1).tolist(), str(each.kind), each.cost) for each in reports]


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_session_and_a_batch_with_the_same_uniforms_give_the_same_bits(name: str) -> None:
    m = MECHANISMS[name]
    x, at_s, u = numbers(m)
    out = sanitize(m, x, at_s, OFFSETS, uniforms=u, run=m.run(TRACES))
    assert out.run is not None
    for trace, first in enumerate(OFFSETS[:-1]):
        rows = slice(first, first + STEPS)
        session = m.session(draws=FixedDraws(u[rows]))
        found = live(session, x[rows], at_s[rows])
        assert [value for value, _, _ in found] == out.value[rows].tolist()
        assert [kind for _, kind, _ in found] == out.kind[rows].tolist()
        assert [cost for _, _, cost in found] == out.cost[rows].tolist()
        alone = out.run.take([trace])
        assert session.run.learnt.tobytes() == alone.learnt.tobytes(), "and the same is learnt"
    assert {"hard", "easy"} <= set(out.kind)
    assert (out.spent <= m.privacy.eps_per_m).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_pieces_are_the_whole_and_a_restored_session_goes_on(name: str) -> None:
    m = MECHANISMS[name]
    x, at_s, u = numbers(m)
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
    assert [value for value, _, _ in later] == whole.value[half:STEPS].tolist()


EAGER = StreamNumbers(first_surprise=1.0)
SPACE = Vector(2, grid=0.5)


@pytest.mark.parametrize(
    "m",
    [
        stream(PRIVACY, SPACE, 12, follow=Follow(SPACE, EAGER)),
        smart_meter(Privacy(2.0, 100.0)),
    ],
    ids=["last release", "daily profile"],
)
def test_secrets_that_lead_to_the_same_releases_lead_to_the_same_guesses(
    m: PredictiveMechanism,
) -> None:
    """A coin that accepts every guess: then all secrets after the first release the same."""
    at_s, rng = START_S + 1800.0 * np.arange(12), np.random.default_rng(2)
    one = np.full((12, m.dim), 300.0)
    other = np.concatenate([one[:1], 4000.0 * rng.random((11, m.dim))])
    u = uniforms(4, 12, m.uniforms)
    for coin, same in ((1e-9, True), (1.0 - 1e-9, False)):
        u[:, 0] = coin
        outs = [sanitize(m, x, at_s, [0, 12], uniforms=u, run=m.run(1)) for x in (one, other)]
        runs = [out.run for out in outs if out.run is not None]
        later = np.array([at_s[-1] + 60.0])
        told = [(*run, m.prediction(run, later), *m.budget(run, later)[:3]) for run in runs]
        equal = [np.array_equal(a, b, equal_nan=True) for a, b in zip(*told, strict=True)]
        assert all(equal) == same
        assert (outs[0].kind[1:] == "easy").all() == same


@pytest.mark.parametrize("name", ["counts", "meter"])
def test_a_lane_holds_the_same_numbers_after_months_as_after_a_day(name: str) -> None:
    m = MECHANISMS[name]
    rng = np.random.default_rng(3)
    run, sizes = m.run(2), []
    for part in range(3):
        n = 120
        at_s = np.tile(START_S + 1800.0 * (n * part + np.arange(n)), 2)
        x = np.abs(rng.normal(300.0, 30.0, (2 * n, m.dim)))
        out = sanitize(m, x, at_s, [0, n, 2 * n], seed=part, run=run)
        assert out.run is not None
        run = out.run
        sizes.append([(field.shape, field.dtype) for field in run])
    assert sizes[0] == sizes[1] == sizes[2]
    assert run.learnt.shape == (2, m.width)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_state_with_numbers_that_nobody_learnt_is_refused(name: str) -> None:
    m = MECHANISMS[name]
    session = m.session(seed=1)
    x, at_s, _ = numbers(m)
    live(session, x[:5], at_s[:5])
    state = session.to_state()
    for wrong in (-1.0, float("nan")):
        for column in (0, 1, m.width - 1):
            learnt = list(state["run"]["learnt"])
            learnt[column] = wrong
            broken = {**state, "run": {**state["run"], "learnt": learnt}}
            with pytest.raises(Exception, match=r"the saved run cannot be used|broken"):
                Session.from_state(m, broken, seed=1)


def errors(m: PredictiveMechanism, x: Floats, seed: int = 1) -> float:
    lanes, steps = x.shape
    at_s = np.tile(1800.0 * np.arange(steps), lanes)
    out = sanitize(m, x.reshape(-1, 1), at_s, np.arange(lanes + 1) * steps, seed=seed)
    assert out.released.all()
    return float(np.abs(out.value.reshape(x.shape) - x).mean())


def test_slow_numbers_are_twice_as_exact_and_wild_ones_as_exact_as_with_independent_noise() -> None:
    """Of steps that are a small share of the noise, and of one to a hundred times the noise."""
    steps, lanes = 60, 120
    rng = np.random.default_rng(5)
    space = Vector(1, grid=0.1)
    ours, alone = stream(PRIVACY, space, steps), independent(PRIVACY, reports=steps, space=space)
    steps_of_noise = rng.normal(0.0, steps, (lanes, steps))

    def ratio(x: Floats) -> float:
        return errors(ours, x) / errors(alone, x)

    assert ratio(np.cumsum(0.02 * steps_of_noise, axis=1)) < 0.5
    jumps = (rng.random((lanes, steps)) < 0.02) * 20.0 * steps_of_noise
    assert ratio(np.cumsum(jumps, axis=1)) < 0.5
    for size in (2.0, 5.0, 30.0, 100.0):
        assert ratio(size * steps_of_noise) < 1.05
        assert ratio(np.cumsum(size * steps_of_noise, axis=1)) < 1.05


def test_more_publications_than_planned_get_less_and_less_and_then_the_last_one_again() -> None:
    m = stream(PRIVACY, Vector(1, grid=0.5), 5)
    x = 1000.0 * np.random.default_rng(6).random((40, 1))
    out = sanitize(m, x, np.arange(40.0), [0, 40], seed=1)
    assert out.released.all()
    assert out.kind[-1] == "untested"
    assert out.spent[0] <= 1.0
    assert out.cost[:5].min() > 0.1


def test_noise_is_moved_no_further_than_its_reach() -> None:
    follow = Follow(Vector(2, "l1"))
    m = stream(PRIVACY, follow.space, 10)
    first = m.session(seed=1)
    first.report((0.0, 0.0), datetime(2025, 1, 1, tzinfo=UTC))
    run, eps = first.run, 0.1
    fresh = run.value + np.array([[500.0, -700.0]])
    released, learnt = follow.update(run, np.array([0]), np.array([1e9]), fresh, eps)
    assert follow.space.distance(fresh, released)[0] <= follow.reach / eps * (1 + 1e-12)
    assert learnt.shape == (1, follow.width)


def test_parts_that_do_not_belong_together_are_refused() -> None:
    space = Vector(1)
    follow = Follow(space)
    with pytest.raises(ParameterError, match="predict by what its budget follows"):
        PredictiveMechanism(
            PRIVACY, SharedOut(1.0, 5, follow), space, Parrot(), NoiseFirst(), window=NoReset()
        )
    with pytest.raises(ParameterError, match="numbers are followed on a "):
        Follow("numbers")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="publications must be a whole number from 1, found 0"):
        stream(PRIVACY, space, 0)
    with pytest.raises(ParameterError, match="privacy must be a "):
        stream(1.0, space, 5)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="wild must lie above calm"):
        StreamNumbers(calm=1.5, wild=1.4)
    with pytest.raises(ParameterError, match="follow must be a Follow"):
        SharedOut(1.0, 5, Parrot())  # type: ignore[arg-type]
    with pytest.raises(PartError, match="coarser grid"):
        stream(Privacy(1e-9, 1.0), space, 5)
