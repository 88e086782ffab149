"""Query traces: the vectorised walk does what the rule says, point by point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hereish.evaluation import dataset, sampling
from hereish.evaluation.dataset import Trajectories, cut_at_silence, label_slow, select_on_foot

DEG_M = math.pi / 180 * 6_371_008.8


def walker(at_s: list[float], metres: list[float], user: int = 0) -> Trajectories:
    points = np.column_stack([60.0 + np.array(metres) / DEG_M, np.full(len(metres), 25.0)])
    times = np.array(at_s, dtype=np.float64)
    return Trajectories(
        "test", times, points, np.array([0, len(times)]), np.array([user]), user + 1
    )


def together(*parts: Trajectories) -> Trajectories:
    return Trajectories(
        "test",
        np.concatenate([part.at_s for part in parts]),
        np.concatenate([part.points for part in parts]),
        np.r_[0, np.cumsum([len(part.at_s) for part in parts])],
        np.concatenate([part.user for part in parts]),
        max(part.users for part in parts),
    )


def wandering(seed: int, points: int = 400) -> Trajectories:
    """Somebody who walks, rides and pauses, with a logger that falls silent now and then."""
    rng = np.random.default_rng(seed)
    steps_s = rng.choice([1.0, 5.0, 60.0, 900.0, 4000.0], points, p=[0.4, 0.4, 0.17, 0.02, 0.01])
    speed = rng.choice([0.0, 1.0, 3.0, 12.0], points)
    return walker(list(1e9 + np.cumsum(steps_s)), list(np.cumsum(steps_s * speed)))


def by_hand(given: Trajectories, label: np.ndarray, p: float, seed: int) -> list[tuple[int, float]]:
    """The rule of the module, one trajectory, one query after the other."""
    rng = np.random.default_rng(seed)
    times = given.at_s.tolist()
    taken = [(0, times[0])]
    last, now = 0, times[0]
    while True:
        jump = rng.random(1)[0] < p
        spread = 1.0 + 0.2 * rng.standard_normal(1)[0]
        now += (3600.0 if jump else 60.0) * max(spread, 0.0)
        if now > times[-1]:
            return taken
        near = min(range(len(times)), key=lambda i: (abs(times[i] - now), i))
        if near == last:
            taken.append((near, now))
        elif abs(times[near] - now) <= 300.0 and label[near]:
            taken.append((near, times[near]))
            last, now = near, times[near]


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_the_walk_is_the_rule(p: float) -> None:
    found = 0
    for seed in range(12):
        given = wandering(seed, 400 if p < 1.0 else 3000)
        label = label_slow(given)
        expected = by_hand(given, label, p, seed)
        queries = sampling.sample(given, label, p, np.random.default_rng(seed))
        if len(expected) < sampling.LEAST_QUERIES:
            assert len(queries) == 0
            continue
        found += 1
        assert queries.at_s.tolist() == [math.floor(at) for _, at in expected]
        assert np.array_equal(queries.points, given.points[[fix for fix, _ in expected]])
    assert found > 5


def test_times_never_fall_and_traces_stay_apart() -> None:
    given = together(*(wandering(seed) for seed in range(30)))
    queries = sampling.sample(given, label_slow(given), 0.2, np.random.default_rng(1))
    falls = np.flatnonzero(np.diff(queries.at_s) < 0) + 1
    assert set(falls) <= set(queries.offsets.tolist())
    assert (np.diff(queries.offsets) >= sampling.LEAST_QUERIES).all()
    assert len(queries) == len(queries.user)


def test_somebody_still_asks_from_the_same_place() -> None:
    given = walker([0.0, 10.0, 7200.0], [0.0, 5.0, 10.0])
    queries = sampling.sample(given, label_slow(given), 0.0, np.random.default_rng(0))
    # The logger is silent for two hours: until its middle somebody seems to sit there.
    assert len(queries.at_s) == pytest.approx(60, abs=8)
    assert len(np.unique(queries.points, axis=0)) == 2


def test_a_silent_logger_ends_the_trajectory_with_gaps() -> None:
    given = together(walker([0, 10, 611, 620], [0, 1, 2, 3]), walker([0, 600], [0, 1], user=1))
    cut = cut_at_silence(given)
    assert cut.offsets.tolist() == [0, 2, 4, 6]
    assert cut.user.tolist() == [0, 0, 1]


def test_points_are_labelled_by_the_interval_that_follows() -> None:
    # 10 m/s is 36 km/h; 4 m/s is 14.4 km/h.
    given = walker([0, 10, 20, 30], [0, 100, 140, 180])
    assert label_slow(given).tolist() == [False, True, True, False]


def test_who_takes_part() -> None:
    def somebody(points: int, minutes: float, slow_share: float) -> Trajectories:
        at_s = np.linspace(0.0, minutes * 60, points)
        step_s = at_s[1]
        fast = np.arange(points - 1) >= slow_share * (points - 1)
        return walker(list(at_s), list(np.r_[0, np.cumsum(np.where(fast, 10.0, 1.0) * step_s)]))

    cases = [(20, 20, 1.0), (19, 20, 1.0), (20, 19.9, 1.0), (101, 30, 0.1), (101, 30, 0.09)]
    expected = [True, False, False, True, False]
    for (points, minutes, share), takes_part in zip(cases, expected, strict=True):
        kept, label = select_on_foot(somebody(points, minutes, share))
        assert (len(kept) == 1) == takes_part
        assert len(label) == len(kept.at_s)


def test_the_first_queries_are_the_first() -> None:
    given = together(*(wandering(seed) for seed in range(5)))
    queries = sampling.sample(given, label_slow(given), 0.0, np.random.default_rng(1))
    short = queries.first(7)
    for i in range(len(queries)):
        whole = queries.at_s[queries.offsets[i] : queries.offsets[i + 1]]
        part = short.at_s[short.offsets[i] : short.offsets[i + 1]]
        assert part.tolist() == whole[:7].tolist()


def test_the_made_up_city_takes_part() -> None:
    kept, label = select_on_foot(dataset.synthetic(users=30))
    assert len(kept) > 20
    assert 0.5 < label.mean() <= 1.0
