"""Sessions with several budgets: hostile states, and others who pay from the same budgets."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hereish import (
    AlwaysNoise,
    BudgetExhaustedError,
    Day,
    Days,
    Forever,
    Hours,
    Line,
    PredictiveMechanism,
    Privacy,
    Session,
    StateError,
)
from hereish.core.windows import Window

T0 = datetime(2026, 3, 1, 8, tzinfo=UTC)


def paying(window: Window) -> PredictiveMechanism:
    return PredictiveMechanism(Privacy(1.0, 1.0), AlwaysNoise(0.25), Line(1e-3), window=window)


NESTED = paying(Day("UTC") & Days(7).within(1.5) & Forever.within(3.0))


def reported(m: PredictiveMechanism, *after: timedelta) -> Session:
    session = m.session(seed=1)
    for each in after:
        session.report(0.0, T0 + each)
    return session


@pytest.fixture
def state() -> Any:
    two_days = [timedelta(0), timedelta(hours=1), timedelta(days=1)]
    return json.loads(json.dumps(reported(NESTED, *two_days).to_state()))


def test_a_saved_session_goes_on_with_its_limits(state: Any) -> None:
    session = Session.from_state(NESTED, state, seed=1)
    assert [one.spent for one in session.budgets] == [0.25, 0.75, 0.75]
    assert session.to_state() == state
    for _ in range(3):
        session.report(0.0, T0 + timedelta(days=2))
    with pytest.raises(BudgetExhaustedError, match="any 7 days") as caught:
        session.report(0.0, T0 + timedelta(days=2))
    assert caught.value.remaining == 0.0


def _set(field: str, column: int, value: Any) -> Any:
    def change(run: dict[str, Any]) -> None:
        run[field][column] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("limit_spent", 0, 1.75),
        _set("limit_spent", 0, -0.25),
        _set("limit_spent", 0, 0.1),
        _set("limit_spent", 0, "nan"),
        _set("limit_spent", 0, 0.25),  # less than is in its older buckets
        _set("limit_older", 0, -0.25),
        _set("limit_older", 0, "inf"),
        _set("limit_bucket", 0, -(2**63)),
        _set("limit_bucket", 0, 3),  # long ago: all would soon be forgotten
        _set("limit_bucket", 0, 1.5),
        lambda run: run.pop("limit_spent"),
        lambda run: run["limit_older"].pop(),
        lambda run: run.update(limit_bucket=[]),
    ],
)
def test_a_state_whose_limits_cannot_be_is_refused(state: Any, change: Any) -> None:
    hostile = copy.deepcopy(state)
    change(hostile["run"])
    with pytest.raises(StateError):
        Session.from_state(NESTED, hostile, seed=1)


def test_a_state_of_other_limits_is_refused(state: Any) -> None:
    other = paying(Day("UTC") & Days(7).within(2.5) & Forever.within(3.0))
    with pytest.raises(StateError, match="made by another mechanism"):
        Session.from_state(other, state, seed=1)


def test_what_others_spend_counts_in_every_window_while_it_lasts() -> None:
    session = reported(NESTED, timedelta(0))
    later = T0 + timedelta(hours=2)
    with session.charged(later, 0.0, [1.25, 0.5]):
        assert [one.remaining for one in session.budgets] == [0.75, 0.0, 2.25]
        with pytest.raises(BudgetExhaustedError, match="any 7 days"):
            session.report(0.0, later)
    assert [one.remaining for one in session.budgets] == [0.75, 1.25, 2.75]
    session.report(0.0, T0 + timedelta(hours=1))  # what was refused has left no trace
    with session.charged(later, 0.25, [0.25, 0.25]):
        session.report(0.0, later + timedelta(days=1))  # in a later bucket
    assert [one.spent for one in session.budgets] == [0.25, 0.75, 0.75]


def test_what_others_spend_counts_in_a_rolling_first_window() -> None:
    session = reported(paying(Hours(24)), timedelta(0))
    with session.charged(T0, 0.75), pytest.raises(BudgetExhaustedError, match="any 24 hours"):
        session.report(0.0, T0)
    assert session.spent == 0.25
    session.report(0.0, T0)
    assert session.spent == 0.5


@pytest.mark.parametrize("charges", [[1.5, 0.0], [0.1, 0.0], [-0.25, 0.0], [0.25]])
def test_what_others_cannot_have_spent_is_refused(charges: list[float]) -> None:
    session = reported(NESTED, timedelta(0))
    with pytest.raises(StateError), session.charged(T0, 0.0, charges):
        pass
    assert [one.spent for one in session.budgets] == [0.25, 0.25, 0.25]
