"""A later hereish paces or remembers in another way: users go on, and nobody is paid twice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hereish.core import presets
from hereish.core.mechanism import PredictiveMechanism, fixed_utility
from hereish.core.places import PlaceMemory
from hereish.core.privacy import Privacy
from hereish.core.rolling import Days
from hereish.core.run import Run
from hereish.core.windows import Day, Forever, Window
from hereish.errors import StateError
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.policy import Policy, StoredPolicy
from hereish.gateway.ledger.user_state import UserState
from tests.support.ledgers import NOON_S, empty_ledger
from tests.support.stage import HELSINKI, member, shown

PRIVACY = Privacy(math.log(10), 100.0)
SETTINGS = Policy(PRIVACY.level, PRIVACY.radius_m)
FAR = (61.5, 25.5)


def version(
    privacy: Privacy = PRIVACY, window: Window | None = None, **numbers: float
) -> PredictiveMechanism:
    return presets.whole_day(
        privacy, window=window or Day("UTC"), numbers=replace(presets.WHOLE_DAY, **numbers)
    )


def stored(m: PredictiveMechanism) -> StoredPolicy:
    """One policy, as a version of hereish builds it that has this mechanism for it."""
    return StoredPolicy(1, 1, SETTINGS, m)


def lived(m: PredictiveMechanism, state: str | None, first: int, reports: int) -> UserState:
    user = UserState(stored(m), None, state, None)
    for i in range(first, first + reports):
        fix = Fix(*(HELSINKI if i % 4 else FAR), NOON_S + 1800.0 * i)
        assert user.add(fix, "phone") is not None
    return user


def test_another_version_goes_on_with_what_was_spent_and_learnt() -> None:
    old, new = version(), version(near=5.0, share=0.9)
    assert old.fingerprint != new.fingerprint
    before = lived(old, None, 0, 8)
    spent = before.budget_at(NOON_S + 8 * 1800.0).spent
    after = UserState(stored(new), None, before.to_json(), None)
    now = after.budget_at(NOON_S + 8 * 1800.0)
    assert (now.spent, now.reports) == (spent, 8)
    assert after.session.run.learnt.tolist() == before.session.run.learnt.tolist()
    assert after.session.run.value.tolist() == before.session.run.value.tolist()


def test_versions_that_take_turns_share_one_budget() -> None:
    """Of a rolling deployment: each report comes to the other one."""
    versions = [version(), version(near=5.0, share=2.0, per_half_hour=0.01)]
    state, costs = None, []
    for i in range(24):  # noon to midnight
        user = lived(versions[i % 2], state, i, 1)
        assert user.newest is not None
        costs.append(user.newest.cost)
        state = user.to_json()
    assert 0.0 < math.fsum(costs) <= PRIVACY.eps_per_m
    assert UserState(stored(versions[0]), None, state, None).budget_at(
        NOON_S + 23.5 * 1800.0
    ).spent == pytest.approx(math.fsum(costs), rel=1e-12)


def test_a_memory_of_another_size_is_begun_anew() -> None:
    small = replace(version(), prediction=PlaceMemory(time_zone="UTC", places=3))
    before = lived(small, None, 0, 8)
    after = UserState(stored(version()), None, before.to_json(), None)
    assert after.session.spent == before.session.spent > 0.0
    assert not after.session.run.learnt.any()


@pytest.mark.parametrize(
    "other",
    [
        version(Privacy(math.log(10), 50.0)),  # another promise
        version(window=Day("Asia/Tokyo")),
        replace(version(), on_exhausted="predict"),
        fixed_utility(PRIVACY, 3000.0, window=Day("UTC")),
    ],
    ids=["privacy", "window", "on_exhausted", "decision"],
)
def test_the_state_of_another_policy_is_refused(other: PredictiveMechanism) -> None:
    state = lived(version(), None, 0, 3).to_json()
    with pytest.raises(StateError, match="another mechanism"):
        _ = UserState(stored(other), None, state, None).session


def test_a_state_that_says_more_was_spent_than_there_is_is_refused() -> None:
    state: dict[str, Any] = json.loads(lived(version(), None, 0, 3).to_json())
    state["session"]["run"]["spent"] = 2.0 * PRIVACY.eps_per_m
    with pytest.raises(StateError, match="more than the budget"):
        _ = UserState(stored(version(near=5.0)), None, json.dumps(state), None).session


FIELDS = sorted(set(Run._fields) - {"mechanism", "learnt", "renyi_spent"})


def limited(m: PredictiveMechanism) -> PredictiveMechanism:
    return replace(m, limits=(Days(30).within(math.log(1000)), Forever.within(math.log(1e6))))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("renamed", [False, True], ids=["missing", "renamed"])
def test_a_state_without_one_of_its_fields_begins_no_new_budget(field: str, renamed: bool) -> None:
    state: dict[str, Any] = json.loads(lived(limited(version()), None, 0, 3).to_json())
    later = stored(limited(version(near=5.0)))
    assert UserState(later, None, json.dumps(state), None).session.spent > 0.0
    value = state["session"]["run"].pop(field)
    if renamed:
        state["session"]["run"][f"{field}_before"] = value
    with pytest.raises(StateError):
        _ = UserState(later, None, json.dumps(state), None).session


def test_the_state_of_a_policy_without_limits_has_none_and_its_limits_are_not_left_out() -> None:
    state: dict[str, Any] = json.loads(lived(version(), None, 0, 3).to_json())
    assert not [name for name in state["session"]["run"] if name.startswith("limit")]
    assert set(state) == {"session", "newest", "number"}
    assert "full_limit" not in state["newest"]
    for one, other in ((version(), limited(version())), (limited(version()), version())):
        told = lived(one, None, 0, 3).to_json()
        with pytest.raises(StateError, match="another mechanism"):
            _ = UserState(stored(other), None, told, None).session


def test_a_state_with_a_field_of_another_version_is_refused() -> None:
    state: dict[str, Any] = json.loads(lived(version(), None, 0, 3).to_json())
    state["session"]["run"]["spent_later"] = 0.01
    with pytest.raises(StateError):
        _ = UserState(stored(version(near=5.0)), None, json.dumps(state), None).session


def test_what_was_learnt_may_be_missing() -> None:
    """Of a version that learnt nothing: only the memory begins anew."""
    before = lived(version(), None, 0, 3)
    state: dict[str, Any] = json.loads(before.to_json())
    del state["session"]["run"]["learnt"]
    after = UserState(stored(version(near=5.0)), None, json.dumps(state), None)
    assert after.session.spent == before.session.spent > 0.0
    assert not after.session.run.learnt.any()


@pytest.mark.parametrize("learnt", [None, 7, "places", {}, True])
def test_what_was_learnt_must_be_numbers(learnt: object) -> None:
    state: dict[str, Any] = json.loads(lived(version(), None, 0, 3).to_json())
    state["session"]["run"]["learnt"] = learnt
    with pytest.raises(StateError):
        _ = UserState(stored(version(near=5.0)), None, json.dumps(state), None).session


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with empty_ledger(tmp_path) as opened:
        yield opened


def test_through_the_ledger(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    token = shown(member(ledger, preset="whole-day", interval_s=1800.0))
    first = ledger.report(token, [Fix(*HELSINKI, NOON_S)], now_s=NOON_S)
    upgraded = version(near=5.0, share=0.9)
    [known] = ledger.policies._cached.items()
    changed = replace(known[1], mechanism=upgraded)
    monkeypatch.setitem(ledger.policies._cached, known[0], changed)
    later_s = NOON_S + timedelta(hours=1).total_seconds()
    again, later = ledger.report(
        token, [Fix(*HELSINKI, NOON_S), Fix(*HELSINKI, later_s)], now_s=later_s
    ).answers
    assert again.release == first.answers[0].release
    assert later.own
    budget = ledger.report(token, [], now_s=later_s).budget
    assert budget.reports == 2
    assert first.budget.spent < budget.spent <= budget.total
