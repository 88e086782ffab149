"""A paced budget lasts: no sequence of times passes it, and none ends it before its window.

Uniforms of the coin next to 1 make every tested guess fail and next to 0 pass, whatever the
secret is: the worst that can happen to a budget, and the best.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish import (
    BudgetExhaustedError,
    Day,
    Every,
    Line,
    ParameterError,
    PartError,
    Plane,
    PredictiveMechanism,
    Privacy,
    Sanitized,
    Sphere,
    sanitize,
    steady,
    whole_day,
)
from hereish.core.presets import WALKER, WHOLE_DAY
from hereish.core.spaces import Space
from hereish.core.types import Floats
from hereish.core.windows import Window
from tests.support.whole_days import PRIVACY, SPACES, uniforms

steadily = settings(derandomize=True, deadline=None, max_examples=150)
HARD, EASY = 1.0 - 2.0**-53, 2.0**-53
DAY_S = 86400.0
# Days on which clocks change, and an ordinary one.
STARTS_S = [
    datetime(2024, *day, 12, 0, tzinfo=UTC).timestamp()
    for day in ((3, 9), (3, 30), (11, 2), (6, 1))
]
ZONES = ["UTC", "Europe/Helsinki", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia"]
WINDOWS: list[Window] = [
    *map(Day, ZONES),
    *(Every(timedelta(**length)) for length in ({"hours": 1}, {"days": 7}, {"days": 400})),
]


def costs_by_window(m: PredictiveMechanism, at_s: Floats, cost: Floats) -> dict[int, Fraction]:
    """What the reports of one trace cost in each window, exactly."""
    index = m.window.index(at_s)
    windows = np.zeros(len(at_s), dtype=np.int64) if index is None else index
    spent: dict[int, Fraction] = {}
    for window, paid in zip(windows.tolist(), cost.tolist(), strict=True):
        spent[window] = spent.get(window, Fraction(0)) + Fraction(paid)
    return spent


def forced(m: PredictiveMechanism, at_s: Floats, coins: Floats, seed: int = 1) -> Sanitized:
    """One trace that jumps about, with these uniforms for the coin of the test."""
    rng = np.random.default_rng(seed)
    low = [max(each.low, -1e6) for each in m.space.coordinates]
    high = [min(each.high, 1e6) for each in m.space.coordinates]
    u = uniforms(m, len(at_s), seed)
    u[:, 0] = coins
    x = rng.uniform(low, high, (len(at_s), m.dim))
    out = sanitize(m, x, at_s, [0, len(at_s)], uniforms=u)
    spent = costs_by_window(m, at_s, out.cost)
    assert (out.cost >= 0.0).all()
    assert max(spent.values()) <= Fraction(m.privacy.eps_per_m), "the budget is exceeded"
    assert Fraction(float(out.spent[0])) == max(spent.values())
    return out


@st.composite
def at_times(draw: st.DrawFn, most: int = 120) -> Floats:
    """Repeated, far apart, in bursts, around midnight."""
    start_s = draw(st.sampled_from(STARTS_S)) + draw(st.sampled_from([0.0, 43199.0, 36000.0]))
    gaps: list[float] = []
    for _ in range(draw(st.integers(1, 6))):
        gap = draw(
            st.sampled_from([0.0, 1e-3, 1.0, 59.0, 300.0, 1800.0, 7200.0, DAY_S, 40 * DAY_S])
        )
        gaps += [gap] * draw(st.integers(1, most // 6))
    return np.asarray(start_s + np.cumsum(gaps))


@st.composite
def numbers(draw: st.DrawFn) -> Any:
    """Settings that nobody would tune to, too."""
    changed = {
        "share": draw(st.sampled_from([1e-6, 0.3, 1.1, 50.0])),
        "per_half_hour": draw(st.sampled_from([1e-9, 0.35, 100.0])),
        "per_report": draw(st.sampled_from([1e-9, 0.3, 100.0])),
        "adapt": draw(st.sampled_from([0.0, 0.15, 1.0, 7.0])),
        "settle": draw(st.sampled_from([0.0, 0.04, 10.0])),
        "strictness": draw(st.sampled_from([1e-6, 0.125, 100.0])),
        "usual_hard": draw(st.sampled_from([1e-3, 0.15, 1.0])),
        "near_noise": draw(st.sampled_from([1e-3, 1.75, 1e3])),
    }
    return replace(WHOLE_DAY, **changed)


coins = st.sampled_from([HARD, EASY, None])
quiets = st.sampled_from(
    [None, (time(23), time(6, 30)), (time(0), time(23, 59)), (time(9), time(3))]
)


def coins_of(coin: float | None, count: int) -> Floats:
    return np.full(count, coin) if coin is not None else np.tile([HARD, HARD, EASY], count)[:count]


@steadily
@given(
    at_times(),
    numbers(),
    coins,
    quiets,
    st.sampled_from(WINDOWS),
    st.sampled_from(list(SPACES.values())),
    st.sampled_from([1.0, 1800.0, DAY_S]),
)
def test_nothing_ends_a_paced_budget_before_its_window(
    at_s: Floats,
    numbers: Any,
    coin: float | None,
    quiet: Any,
    window: Window,
    space: Space,
    every_s: float,
) -> None:
    every = timedelta(seconds=every_s)
    quiet = quiet if isinstance(window, Day) else None
    m = whole_day(PRIVACY, every=every, window=window, quiet=quiet, space=space, numbers=numbers)
    out = forced(m, at_s, coins_of(coin, len(at_s)))
    assert out.released.all()
    assert np.isfinite(out.value).all()


@steadily
@given(
    at_times(),
    numbers(),
    coins,
    quiets,
    st.sampled_from([*WINDOWS, "none"]),
    st.sampled_from(list(SPACES.values())),
    st.sampled_from([1, 2, 3, 30, 1000, 2**20]),
)
def test_all_planned_reports_are_delivered_whenever_they_come(
    at_s: Floats,
    numbers: Any,
    coin: float | None,
    quiet: Any,
    window: Any,
    space: Space,
    reports: int,
) -> None:
    quiet = quiet if isinstance(window, Day) else None
    m = whole_day(
        PRIVACY, window=window, quiet=quiet, space=space, reports=reports, numbers=numbers
    )
    out = forced(m, at_s, coins_of(coin, len(at_s)))
    index = m.window.index(at_s)
    windows = np.zeros(len(at_s), dtype=np.int64) if index is None else index
    first = np.searchsorted(windows, windows)  # times never fall, so neither do windows
    planned = np.arange(len(at_s)) - first < reports
    assert out.released[planned].all()
    if window != "none":
        assert out.released.all(), "more than were expected get what is left"


@pytest.mark.parametrize("place", SPACES)
def test_thirty_reports_are_thirty_reports(place: str) -> None:
    m = whole_day(PRIVACY, reports=30, window="none", space=SPACES[place])
    for seed in range(5):
        at_s = STARTS_S[0] + 1800.0 * np.arange(45.0)
        out = forced(m, at_s, np.full(45, HARD), seed)
        assert out.released[:30].all()
        assert not out.released[30:].any()
        assert out.spent[0] > (1.0 - 1e-9) * PRIVACY.eps_per_m, "the last one takes all"


@pytest.mark.parametrize("place", SPACES)
@pytest.mark.parametrize("when", ["all day", "in the last minute", "at once", "at the last moment"])
def test_thousands_of_hard_reports_do_not_end_the_day(place: str, when: str) -> None:
    count, midnight = 5000, 19880 * DAY_S
    at_s = {
        "all day": midnight + np.linspace(0.0, DAY_S - 1.0, count),
        "in the last minute": midnight + DAY_S - 60.0 + np.linspace(0.0, 59.9, count),
        "at once": np.full(count, midnight + 3600.0),
        "at the last moment": np.full(count, math.nextafter(midnight + DAY_S, 0.0)),
    }[when]
    for quiet in (None, (time(12), time(13))):
        m = whole_day(PRIVACY, quiet=quiet, space=SPACES[place])
        out = forced(m, at_s, np.full(count, HARD))
        assert out.released.all()
        assert np.count_nonzero(out.hard) > 2
        # Down to next to nothing, and there the guess is repeated: no noise of a quantum.
        drawn = out.eps_noise[out.hard]
        assert drawn.min() >= max(2.0**-21 * PRIVACY.eps_per_m, m.smallest_eps)
        assert (out.kind == "untested").any()


def test_the_audit_sees_a_budget_that_ends() -> None:
    # The accuracy asks for more than there is, which is why it may end; so may a steady one.
    accuracy_m = 4.0 * Sphere().c_noise(0.9) / PRIVACY.eps_per_m
    at_s = 19880 * DAY_S + 1800.0 * np.arange(48.0)
    for m in (
        whole_day(PRIVACY, accuracy_m=accuracy_m),
        steady(PRIVACY, accuracy_m, numbers=WALKER, window=Day("UTC")),
    ):
        out = forced(m, at_s, np.full(48, HARD))
        assert not out.released.all()
        assert out.released[:2].all()
        assert (out.eps_noise[out.hard] >= m.bound.quantised(0.999 * PRIVACY.eps_per_m / 4)).all()


def test_a_grid_too_fine_for_the_budget_is_refused_at_once() -> None:
    faint = Privacy(1.0, 1e9)
    for space in (Line(1e-3), Plane(1e-2)):
        assert space.smallest_eps > faint.eps_per_m
        with pytest.raises(PartError, match="coarser grid"):
            whole_day(faint, space=space)
    # With room for a few noises only, these are drawn and the guess is repeated from then on.
    tight = Privacy(2.5 * Plane().smallest_eps * 100.0, 100.0)
    m = whole_day(tight, space=Plane())
    out = forced(m, 19880 * DAY_S + 600.0 * np.arange(100.0), np.full(100, HARD))
    assert out.released.all()
    assert 1 <= np.count_nonzero(out.hard) <= 2


def test_a_lane_without_budget_does_not_stop_the_others() -> None:
    # What it plans could not be drawn on this grid, and will not be.
    m = whole_day(PRIVACY, reports=2, window="none", space=Plane())
    u = uniforms(m, 12)
    u[:, 0] = HARD
    at_s = STARTS_S[0] + np.tile(3600.0 * np.arange(6.0), 2)
    x = np.tile([[0.0, 0.0], [1e6, 1e6]], (6, 1))
    out = sanitize(m, x, at_s, [0, 6, 12], uniforms=u)
    assert out.released.tolist() == [True, True, False, False, False, False] * 2
    session = m.session(seed=1)
    for hour in range(2):
        session.report((0.0, 0.0), datetime(2026, 1, 1, hour, tzinfo=UTC))
    if session.remaining == 0.0:
        with pytest.raises(BudgetExhaustedError):
            session.report((0.0, 0.0), datetime(2026, 1, 1, 3, tzinfo=UTC))


@pytest.mark.parametrize(
    "changed",
    [
        {"adapt": math.nan},
        {"adapt": -1.0},
        {"settle": math.inf},
        {"settle": -0.1},
        {"share": 0.0},
        {"share": math.nan},
        {"per_half_hour": 0.0},
        {"usual_hard": -1.0},
        {"learn_after": 0.0},
        {"near": math.nan},
        {"strictness": 0.0},
        {"longest_s": -5.0},
        {"reach": 0.0},
        {"blur": math.inf},
        {"habit": math.nan},
        {"habit": -1.0},
    ],
    ids=repr,
)
def test_numbers_that_mean_nothing_are_refused(changed: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match=next(iter(changed))):
        whole_day(PRIVACY, numbers=replace(WHOLE_DAY, **changed))


@pytest.mark.parametrize("reports", [0, -1, 2.5, True, "30", math.nan])
def test_a_number_of_reports_is_a_whole_number_from_one(reports: Any) -> None:
    with pytest.raises(ParameterError, match="reports"):
        whole_day(PRIVACY, reports=reports)
