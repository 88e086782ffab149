"""One step, two drivers: a live session and a batch fed the same uniforms give the same bits.

Bits, not values within a tolerance: a result that depended on what else is in the batch would
make a retry on another machine a second, different release of the same secret.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from hereish import (
    BudgetExhaustedError,
    Day,
    Every,
    KeyedDraws,
    Line,
    Manhattan,
    NoiseFirst,
    NoReset,
    Past,
    Plan,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    Sanitized,
    Session,
    SkipBySpeed,
    Sphere,
    fixed_rate,
    fixed_utility,
    independent,
    lift,
    sanitize,
)
from hereish.core import batch
from hereish.core.noise import sphere_angle
from hereish.core.spaces import Space
from hereish.core.types import Floats, Ints

KEY = bytes(range(32))
START_S = datetime(2024, 3, 9, 20, 0, tzinfo=UTC).timestamp()
# Ragged, with empty traces and traces of one point among the others.
LENGTHS = [0, 1, 30, 1, 2, 0, 7, 19, 19, 3, 12, 0]


class Given:
    """Draws that were decided beforehand."""

    private = False

    def __init__(self, u: Floats) -> None:
        self._left = np.ascontiguousarray(u).reshape(-1)

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        drawn, self._left = self._left[:count], self._left[count:]
        return drawn.copy()


@dataclass(frozen=True)
class World:
    """A space, with a budget and movements of a size that makes some guesses good and some bad."""

    space: Space
    level: float = math.log(10.0)
    radius_m: float = 100.0

    @property
    def privacy(self) -> Privacy:
        return Privacy(self.level, self.radius_m)

    def points(self, rng: np.random.Generator, count: int) -> Floats:
        if not isinstance(self.space, Sphere):
            size = (count, len(self.space.coordinates))
            steps = rng.choice([0.0, 1.0, 30.0], (count, 1)) * rng.normal(size=size)
            return np.asarray(np.cumsum(steps * self.radius_m, axis=0))
        # The places where coordinates break: poles, the antimeridian, nought, and next to them.
        lat = rng.choice([-90.0, 90.0, 89.99999, 0.0, -0.0, 60.17, -33.9], count)
        lon = rng.choice([-180.0, 180.0, 179.99999, 0.0, -0.0, 24.94, 151.2], count)
        some = np.repeat(np.column_stack([lat, lon]), 4, axis=0)[:count]  # stay a while
        some += (np.abs(some) < 80.0) * rng.normal(size=(count, 2)) * 1e-3
        return np.asarray(some, dtype=np.float64)


WORLDS = {
    "line": World(Line(0.25)),
    "plane": World(Plane()),
    "city blocks": World(Manhattan()),
    "sphere": World(Sphere()),
    # Noise of the size of the globe and beyond, on the finest grid that there is.
    "wide sphere": World(Sphere(6), radius_m=1e6),
    "wider sphere": World(Sphere(6), radius_m=1e9),
}
WINDOWS = [NoReset(), Every(timedelta(minutes=90)), Day("America/St_Johns")]


def uneven(total: float) -> Callable[[Run, Floats], Plan]:
    """A manager that plans something else in every lane, with every kind of threshold."""

    def plan(run: Run, at_s: Floats, /) -> Plan:
        which = np.asarray((run.reports + at_s.astype(np.int64)) % 7, dtype=np.float64)
        threshold = np.select([which == 5, which == 6], [-np.inf, np.inf], 4.0 / total)
        return Plan(total * (0.01 + 0.013 * which), total * (0.3 / (1.0 + which)), threshold)

    return plan


def affordable(total: float) -> Callable[[Run, Floats], Plan]:
    """The same with tests that cost no more than the noise, as `NoiseFirst` needs them."""

    def plan(run: Run, at_s: Floats, /) -> Plan:
        eps_test, eps_noise, threshold, _ = uneven(2.0 * total)(run, at_s)
        return Plan(np.minimum(eps_test, eps_noise), eps_noise, 2.0 * threshold)

    return plan


def build(kind: str, world: World, **rest: Any) -> PredictiveMechanism:
    """A mechanism whose budget is gone before the longer traces end."""
    privacy, space, rest = world.privacy, world.space, {"space": world.space, **rest}
    paying: dict[str, Any] = {
        "gamma": 2.0,
        "prediction_rate": 0.8,
    }  # no warning that it might not pay
    if kind == "fixed utility":
        accuracy = 9.0 * space.c_noise(0.9) / privacy.eps_per_m
        return fixed_utility(privacy, accuracy, **paying, **rest)
    if kind == "fixed rate":
        return fixed_rate(privacy, 11, **paying, **rest)
    if kind == "uneven":
        return PredictiveMechanism(privacy, uneven(privacy.eps_per_m), **rest)
    if kind == "noise first":
        plans = affordable(privacy.eps_per_m)
        return PredictiveMechanism(privacy, plans, decision=NoiseFirst(), **rest)
    if kind == "independent by reports":
        return independent(privacy, reports=10, **rest)
    accuracy = 12.3 * space.c_noise(0.9) / privacy.eps_per_m
    return independent(privacy, accuracy_m=accuracy, **rest)


MANAGERS = {
    f"{kind}, {name}": (kind, skip)
    for kind in ("fixed utility", "fixed rate", "uneven", "noise first")
    for name, skip in {
        "no skip": {},
        "since hard": {"skip": SkipBySpeed(30.0, 1500.0)},
        "since tested": {"skip": SkipBySpeed(5.0, 900.0, since="tested")},
    }.items()
} | {kind: (kind, {}) for kind in ("independent by reports", "independent by accuracy")}


def batch_of(
    world: World, m: PredictiveMechanism, lengths: Sequence[int], seed: int = 1
) -> tuple[Floats, Floats, Ints, Floats]:
    """Points, times, offsets and uniforms of made-up traces."""
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *lengths])
    total = int(offsets[-1])
    gaps = rng.choice([0.0, 0.25, 30.0, 60.0, 3600.0, 20_000.0], total)
    at_s = [START_S + np.cumsum(gaps[start:end]) for start, end in pairwise(offsets)]
    u = np.ldexp(2 * rng.integers(0, 2**52, (total, m.uniforms)) + 1, -53)
    return world.points(rng, total), np.concatenate([[], *at_s]), offsets, u


def live(session: Session, x: Floats, at_s: Floats) -> tuple[Floats, Floats, list[str], float]:
    """Values, costs and kinds of one trace as a session reports it, and the most it spent."""
    value, cost, kind, spent = np.full(x.shape, np.nan), np.zeros(len(x)), [], 0.0
    for i, (point, now) in enumerate(zip(x, at_s, strict=True)):
        try:
            report = session.report(tuple(point), datetime.fromtimestamp(now, UTC))
        except BudgetExhaustedError:
            kind.append("")
        else:
            value[i], cost[i] = report.value, report.cost
            kind.append(report.kind)
        spent = max(spent, session.spent)
    return value, cost, kind, spent


def bits(values: Floats) -> bytes:
    return values.tobytes()


def same(one: Sanitized, other: Sanitized) -> bool:
    names = ("value", "released", "hard", "eps_test", "eps_noise", "threshold", "spent")
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names)


def assert_same_as_live(
    out: Sanitized,
    x: Floats,
    at_s: Floats,
    offsets: Ints,
    session: Callable[[int], Session],
    traces: Sequence[int] | None = None,
) -> None:
    for i in range(len(offsets) - 1) if traces is None else traces:
        rows = slice(offsets[i], offsets[i + 1])
        value, cost, kind, spent = live(session(i), x[rows], at_s[rows])
        assert kind == out.kind[rows].tolist()
        assert bits(value) == bits(out.value[rows])
        assert bits(cost) == bits(out.cost[rows])
        assert spent == out.spent[i]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few lanes and chunks of few points: every seam of the batch within few traces."""
    monkeypatch.setattr(batch, "LANES", 8)
    monkeypatch.setattr(batch, "POINTS", 20)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("place", WORLDS)
@pytest.mark.parametrize("manager", MANAGERS)
def test_a_session_and_a_batch_with_the_same_uniforms_give_the_same_bits(
    manager: str, place: str
) -> None:
    world, (kind, skip) = WORLDS[place], MANAGERS[manager]
    seen: set[str] = set()
    for seed, (window, on_exhausted) in enumerate(product(WINDOWS, ("stop", "predict"))):
        m = build(kind, world, window=window, on_exhausted=on_exhausted, **skip)
        x, at_s, offsets, u = batch_of(world, m, LENGTHS, seed)
        out = sanitize(m, x, at_s, offsets, uniforms=u)
        session = [m.session(draws=Given(u[a:b])) for a, b in pairwise(offsets)]
        assert_same_as_live(out, x, at_s, offsets, session.__getitem__)
        seen |= set(out.kind.tolist())
    # Otherwise the comparison would be of little: hard, easy, free and refused must all occur.
    expected = {"hard", "untested", ""} | ({"easy"} if "independent" not in kind else set())
    assert seen == expected


@pytest.mark.parametrize("memory", [1, 2, 3])
def test_predictions_that_look_further_back_give_the_same_bits_too(
    memory: int, small_blocks: None
) -> None:
    def drifting(past: Sequence[Past], at_s: float) -> Sequence[float] | None:
        if len(past) < memory:
            return None  # no guess yet: in some lanes while others have one
        return [2.0 * a - b for a, b in zip(past[0].value, past[-1].value, strict=True)]

    world = WORLDS["plane"]
    for on_exhausted in ("stop", "predict"):
        rest = {"prediction": lift(drifting, memory), "on_exhausted": on_exhausted}
        m = build("fixed rate", world, **rest)
        x, at_s, offsets, u = batch_of(world, m, LENGTHS)
        out = sanitize(m, x, at_s, offsets, uniforms=u)
        session = [m.session(draws=Given(u[a:b])) for a, b in pairwise(offsets)]
        assert_same_as_live(out, x, at_s, offsets, session.__getitem__)


def ageing(past: Sequence[Past], at_s: float) -> Sequence[float] | None:
    """Drifts with the time since the last release, so that it matters which time is remembered."""
    return [past[0].value[0] + (at_s - past[0].at_s), past[0].value[1]] if past else None


@pytest.mark.parametrize(
    ("place", "kind", "rest"),
    [
        *((place, "fixed rate", {"window": WINDOWS[1]}) for place in WORLDS),
        ("plane", "fixed utility", {"skip": SkipBySpeed(5.0, 900.0, since="tested")}),
        ("plane", "uneven", {"prediction": lift(ageing), "on_exhausted": "predict"}),
        ("plane", "fixed rate", {"prediction": lift(ageing), "window": WINDOWS[2]}),
        *(
            (place, "noise first", {"on_exhausted": "predict"})
            for place in ("plane", "wide sphere")
        ),
    ],
)
def test_results_do_not_depend_on_how_the_batch_is_cut(
    place: str, kind: str, rest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = WORLDS[place]
    m = build(kind, world, **rest)
    for lengths in (LENGTHS, [9] * 11):  # ragged traces are copied, equal ones are viewed
        x, at_s, offsets, u = batch_of(world, m, lengths)
        whole = sanitize(m, x, at_s, offsets, uniforms=u)
        for lanes, points in product((1, 2, 3, 11, 100), (1, 5, 12, 1000)):
            monkeypatch.setattr(batch, "LANES", lanes)
            monkeypatch.setattr(batch, "POINTS", points)
            assert same(whole, sanitize(m, x, at_s, offsets, uniforms=u))
        monkeypatch.undo()
        by_column = np.asfortranarray(x), at_s, offsets
        assert same(whole, sanitize(m, *by_column, uniforms=np.asfortranarray(u)))


@pytest.mark.parametrize("place", ["plane", "sphere", "wide sphere"])
def test_a_batch_of_more_lanes_than_a_block_gives_the_same_bits(place: str) -> None:
    world = WORLDS[place]
    m = build("fixed utility", world, on_exhausted="predict")
    lengths = np.random.default_rng(3).integers(0, 4, batch.LANES + 500)
    lengths[-1] = 3
    x, at_s, offsets, u = batch_of(world, m, lengths.tolist())
    out = sanitize(m, x, at_s, offsets, uniforms=u)

    def session(i: int) -> Session:
        return m.session(draws=Given(u[offsets[i] : offsets[i + 1]]))

    assert_same_as_live(out, x, at_s, offsets, session, range(0, len(lengths), 23))


@pytest.mark.parametrize("k", [1e-9, 0.01, 1.0, 30.0, 250.0, 280.0, 6000.0, None], ids=repr)
def test_noise_on_the_sphere_does_not_depend_on_the_other_lanes(k: float | None) -> None:
    # The angle is found by iteration, and lanes need more or fewer rounds. Rounding to the grid
    # hides almost all of what one round more would change, so look before it.
    lanes = 400
    u1, u2 = np.random.default_rng(9).uniform(1e-9, 1.0, (2, lanes))
    size = 10.0 ** np.linspace(-3.0, 5.0, lanes) if k is None else np.full(lanes, k)
    together = np.array(sphere_angle(size, u1, u2))
    if k is not None:
        assert bits(np.array(sphere_angle(k, u1, u2))) == bits(together)
    for i in range(lanes):
        alone = np.array(sphere_angle(size[i : i + 1], u1[i : i + 1], u2[i : i + 1]))
        assert bits(alone) == bits(together[..., i])


def test_empty_traces_may_stand_anywhere_and_a_batch_may_be_empty() -> None:
    world = WORLDS["plane"]
    m = build("fixed utility", world)
    for lengths in ([0, 0, 3], [3, 0], [0, 3, 0, 0], [0], [0, 0], []):
        x, at_s, offsets, u = batch_of(world, m, lengths)
        out = sanitize(m, x, at_s, offsets, uniforms=u)
        assert len(out.spent) == len(lengths)
        session = [m.session(draws=Given(u[a:b])) for a, b in pairwise(offsets)]
        assert_same_as_live(out, x, at_s, offsets, session.__getitem__)


@pytest.mark.parametrize("place", WORLDS)
@pytest.mark.parametrize("points", [None, 7])
def test_a_seeded_session_equals_the_seeded_batch_of_its_one_trace(
    place: str, points: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "POINTS", points or batch.POINTS)
    world = WORLDS[place]
    m = build("fixed rate", world, on_exhausted="predict")
    x, at_s, offsets, _ = batch_of(world, m, [60])
    out = sanitize(m, x, at_s, offsets, seed=11)
    assert_same_as_live(out, x, at_s, offsets, lambda i: m.session(seed=11))
    assert not same(out, sanitize(m, x, at_s, offsets, seed=12))


@pytest.mark.parametrize("cut", [0, 1, 2, 17, 59, 60])
@pytest.mark.parametrize("window", WINDOWS, ids=repr)
def test_a_session_that_was_saved_and_restored_goes_on_with_the_same_bits(
    cut: int, window: Any
) -> None:
    world = WORLDS["sphere"]
    skip = SkipBySpeed(5.0, 900.0, since="tested")
    m = build("fixed rate", world, window=window, skip=skip, on_exhausted="predict")
    x, at_s, _, _ = batch_of(world, m, [60])
    whole = live(m.session(seed=5), x, at_s)
    first = m.session(seed=5)
    before = live(first, x[:cut], at_s[:cut])
    state = json.loads(json.dumps(first.to_state(), allow_nan=False))
    second = Session.from_state(m, state, seed=5)
    for one, other in zip(first.run, second.run, strict=True):
        assert one.tobytes() == other.tobytes()
        assert one.dtype == other.dtype
    after = live(second, x[cut:], at_s[cut:])
    assert bits(np.concatenate([before[0], after[0]])) == bits(whole[0])
    assert bits(np.concatenate([before[1], after[1]])) == bits(whole[1])
    assert before[2] + after[2] == whole[2]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("window", WINDOWS, ids=repr)
@pytest.mark.parametrize("kind", ["uneven", "noise first"])
def test_keyed_sessions_and_batches_give_the_same_bits_and_give_them_again(
    kind: str, window: Any
) -> None:
    world = WORLDS["sphere"]
    m = build(kind, world, window=window)
    x, at_s, offsets, _ = batch_of(world, m, LENGTHS)
    users = [f"user {i}" for i in range(len(LENGTHS))]
    out = sanitize(m, x, at_s, offsets, draws=KeyedDraws(KEY), users=users)
    assert_same_as_live(
        out, x, at_s, offsets, lambda i: m.session(draws=KeyedDraws(KEY), user=users[i])
    )
    assert same(out, sanitize(m, x, at_s, offsets, draws=KeyedDraws(KEY), users=users))
    # A trace alone, as after a failure of the others, is released as it was among them.
    for i, (start, end) in enumerate(pairwise(offsets)):
        rows, alone = slice(start, end), [0, end - start]
        again = sanitize(m, x[rows], at_s[rows], alone, draws=KeyedDraws(KEY), users=[users[i]])
        assert again.value.tobytes() == out.value[rows].tobytes()
    for key, names in ((KEY[::-1], users), (KEY, [name + "!" for name in users])):
        other = sanitize(m, x, at_s, offsets, draws=KeyedDraws(key), users=names)
        assert not (other.value == out.value)[out.hard & other.hard].all(axis=1).any()
