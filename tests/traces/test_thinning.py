"""Thinning looks at public times alone and keeps reports apart."""

from __future__ import annotations

import numpy as np

from hereish.traces.thinning import Thinner

MIN_US = 60_000_000


def greedy(times: list[int], every: int) -> list[int]:
    """The rule, point by point."""
    chosen: list[int] = []
    for time in sorted(times):
        if not chosen or time >= chosen[-1] + every:
            chosen.append(time)
    return chosen


def test_it_keeps_what_the_rule_says_for_each_user_in_any_order_and_any_pieces() -> None:
    rng = np.random.default_rng(0)
    for every in (1, 7, 50):
        at_us = rng.permutation(300)[:120]
        user = rng.integers(0, 3, len(at_us))
        whole = Thinner(every).keep(user, "abc", at_us)
        for one in range(3):
            kept = sorted(at_us[whole & (user == one)].tolist())
            assert kept == greedy(at_us[user == one].tolist(), every)
        order = np.argsort(at_us)
        batches = Thinner(every)
        parts = np.array_split(order, 5)
        again = np.concatenate([batches.keep(user[part], "abc", at_us[part]) for part in parts])
        assert np.array_equal(again, whole[order])


def test_earlier_rows_that_come_later_are_thinned_on_their_own() -> None:
    thinner = Thinner(5 * MIN_US)
    day_two = np.array([1000, 1003, 1006]) * MIN_US
    day_one = np.array([10, 12, 16]) * MIN_US
    nobody = np.zeros(3, dtype=np.int64)
    assert thinner.keep(nobody, ["a"], day_two).tolist() == [True, False, True]
    assert thinner.keep(nobody, ["a"], day_one).tolist() == [True, False, True]
    later = np.array([1009, 1011, 1012]) * MIN_US
    assert thinner.keep(nobody, ["a"], later).tolist() == [False, True, False]


def test_nothing_in_nothing_out() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert Thinner(1).keep(none, [], none).tolist() == []
