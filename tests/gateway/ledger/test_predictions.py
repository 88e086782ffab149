"""Predictions in the gateway: what they have learnt is stored, and begins anew with another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from hereish.core.settings import PREDICTIONS, PredictionName
from hereish.core.types import Kind
from hereish.gateway.admin import accounts
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.tables import users
from hereish.gateway.ledger.tokens import PresentedToken
from tests.support.ledgers import NOON_S, empty_ledger
from tests.support.stage import member, policy, shown

NEAR: dict[str, Any] = {"radius_m": 1.0, "accuracy_m": 200.0}


def ride(ledger: Ledger, token: PresentedToken, first: int, last: int) -> list[Kind]:
    """North at 36 m/s, a fix every ten seconds."""
    kinds = []
    for i in range(first, last):
        at_s = NOON_S + 10.0 * i
        done = ledger.report(token, [Fix(60.0 + 360.0 * i / 111_195.0, 25.0, at_s)], now_s=at_s)
        kinds += [one.release.kind for one in done.answers if one.release is not None]
    return kinds


def learnt(ledger: Ledger) -> list[float]:
    with ledger.database.reading() as tx:
        state = json.loads(tx.execute(select(users.c.state)).scalar_one())
    found: list[float] = state["session"]["run"].get("learnt", [])
    return found


@pytest.mark.parametrize("name", PREDICTIONS)
def test_what_is_learnt_survives_a_restart(tmp_path: Path, name: PredictionName) -> None:
    with empty_ledger(tmp_path) as opened:
        token = shown(member(opened, prediction=name, **NEAR))
        ride(opened, token, 0, 25)
        before = learnt(opened)
    assert len(before) == policy(prediction=name, **NEAR).build().width
    assert any(before) == (name != "parrot")
    with empty_ledger(tmp_path) as opened:
        assert learnt(opened) == before
        ride(opened, token, 25, 26)
        after = learnt(opened)
        assert ride(opened, token, 26, 40)
    if name in ("filter", "ensemble"):  # others do not learn from every release
        assert len(set(before) & set(after)) < len(before), "it goes on from there"


def test_another_prediction_begins_anew_with_the_same_budget_and_releases(tmp_path: Path) -> None:
    with empty_ledger(tmp_path) as opened:
        token = shown(member(opened, prediction="linear", window="60", **NEAR))
        ride(opened, token, 0, 12)
        others: tuple[PredictionName, ...] = ("filter", "ensemble", "places", "linear")
        for i, name in enumerate(others, start=1):
            accounts.set_policy(opened, "alice", policy(prediction=name, window="60", **NEAR))
            assert ride(opened, token, 12 * i, 12 * i + 12)
            assert len(learnt(opened)) == policy(prediction=name, **NEAR).build().width
