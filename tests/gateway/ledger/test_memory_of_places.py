"""What a policy has learnt of places is in the user's state: how much, for how long, until when."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, update

from hereish.gateway.admin import accounts, maintenance
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.tables import users
from hereish.gateway.ledger.tokens import PresentedToken
from tests.gateway.ledger.test_policy import BEFORE_PRESETS
from tests.support.ledgers import DAY_S, NOON_S, back_up_sqlite, empty_ledger
from tests.support.stage import HELSINKI, member, paths_in, policy, shown

FAR = (61.5, 25.5)
LASTING: dict[str, Any] = {"preset": "whole-day", "interval_s": 1800.0}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with empty_ledger(tmp_path) as opened:
        yield opened


def read_state(ledger: Ledger, name: str = "alice") -> dict[str, Any]:
    with ledger.database.reading() as tx:
        state: dict[str, Any] = json.loads(
            tx.execute(select(users.c.state).where(users.c.name == name)).scalar_one()
        )
        return state


def learnt(ledger: Ledger, name: str = "alice") -> list[float]:
    found: list[float] = read_state(ledger, name)["session"]["run"]["learnt"]
    return found


def live(ledger: Ledger, token: PresentedToken, from_s: float, days: int = 2) -> None:
    """Here by night and far away by day, every half hour."""
    for i in range(days * 48):
        at_s = from_s + i * 1800.0
        place = FAR if 16 <= i % 48 < 34 else HELSINKI
        ledger.report(token, [Fix(*place, at_s)], now_s=at_s)


def test_it_survives_midnight_and_a_restart(tmp_path: Path) -> None:
    with empty_ledger(tmp_path) as opened:
        token = member(opened, **LASTING)
        live(opened, shown(token), NOON_S)
        before = learnt(opened)
        assert sum(number != 0.0 for number in before) > 6, "two places, and hours at them"
    with empty_ledger(tmp_path) as opened:
        assert learnt(opened) == before
        midnight_s = NOON_S + 2.5 * DAY_S
        after = opened.report(shown(token), [Fix(*HELSINKI, midnight_s)], now_s=midnight_s)
        assert after.budget.reports == 1, "a fresh budget"
        table = np.array(learnt(opened)).reshape(6, 9)
        known = table[table[:, 2] > 0.0]
        old = np.array(before).reshape(6, 9)
        assert len(known) >= np.count_nonzero(old[:, 2] > 0.0) >= 2


def test_a_state_stays_small_however_long_somebody_reports(ledger: Ledger) -> None:
    token = shown(member(ledger, **LASTING))
    sizes = []
    for day in range(4):
        live(ledger, token, NOON_S + day * DAY_S, days=1)
        sizes.append(len(json.dumps(read_state(ledger))))
        assert len(learnt(ledger)) == 54
    assert max(sizes) < 3000


BEFORE_PRESETS_STATE = (
    '{"session": {"version": 1, "mechanism": "FINGERPRINT", "drawn": 0, "run": {"values": '
    '[[60.21321, 24.89437]], "times_s": [1762178400.0], "hards": [true], "reports": 5, "easy": 2, '
    '"spent": 0.006303877038462247, "ended": false, "window": 739558, "hard_at_s": "nan", '
    '"hard_threshold": "-inf", "tested_at_s": "nan"}}, "newest": {"at_s": 1762178400.0, "lat": '
    '60.21321, "lon": 24.89437, "kind": "hard", "cost": 0.0019001126071032104, "accuracy_m": '
    '3016.843083317662, "eps_test": 0.0006035392171526155, "eps_noise": 0.001296573389950595, '
    '"threshold_m": 3333.333333333333, "window": 739558, "policy_id": 1, "device": "phone"}, '
    '"number": 5, "heard": ["phone", 1762178400.0]}'
)


def test_a_state_from_before_presets_is_gone_on_with(ledger: Ledger) -> None:
    """Of a rolling deployment: written by the version before, which had learnt nothing."""
    body, fingerprint = BEFORE_PRESETS["utility"]
    state = BEFORE_PRESETS_STATE.replace("FINGERPRINT", fingerprint)
    token = shown(member(ledger, **{**json.loads(body), "reports": None}))
    with ledger.database.writing() as tx:
        tx.execute(update(users).values(state=state))
    later = ledger.report(token, [Fix(*HELSINKI, 1762180200.0)], now_s=1762180200.0)
    assert later.budget.reports == 6
    assert later.budget.spent > 0.006303877038462247
    assert "learnt" not in read_state(ledger)["session"]["run"]


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        ({**LASTING, "interval_s": 600.0}, True),
        ({**LASTING, "radius_m": 200.0, "quiet": "23:00-06:00"}, True),
        ({**LASTING, "time_zone": "Asia/Tokyo"}, True),
        ({"preset": "walker", "interval_s": 600.0}, True),
        ({}, False),  # the paper's: it learns nothing
    ],
)
def test_what_a_change_of_policy_does_with_it(
    ledger: Ledger, other: dict[str, Any], kept: bool
) -> None:
    token = shown(member(ledger, **LASTING))
    live(ledger, token, NOON_S)
    before = np.array(learnt(ledger)).reshape(6, 9)
    accounts.set_policy(ledger, "alice", policy(**other))
    later_s = NOON_S + 4 * DAY_S
    answered = ledger.report(token, [Fix(*HELSINKI, later_s)], now_s=later_s)
    assert answered.policy.interval_s == policy(**other).interval_s, "the change has come"
    assert answered.budget.reports == 1
    assert answered.answers[0].own
    run = read_state(ledger)["session"]["run"]
    assert ("learnt" in run) == kept
    if kept:
        after = np.array(run["learnt"]).reshape(6, 9)
        places = before[before[:, 2] > 0.0]
        exact = places[places[:, 2].argmax()]
        near = np.abs(after[:, :2] - exact[:2]).max(axis=1)
        assert near.min() < 0.2, "its best known place is still one"
        assert after[near.argmin(), 2] >= exact[2], "and known as exactly"


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        ({**LASTING, "prediction": "mobility", "radius_m": 200.0}, True),
        ({"preset": "walker", "interval_s": 600.0, "prediction": "mobility"}, True),
        (LASTING, False),
    ],
)
def test_hours_and_moves_of_the_mobility_model_are_kept_as_long_as_it_is_the_policys(
    ledger: Ledger, other: dict[str, Any], kept: bool
) -> None:
    token = shown(member(ledger, **LASTING, prediction="mobility"))
    live(ledger, token, NOON_S, days=3)
    width = policy(**LASTING, prediction="mobility").build().width
    before = np.array(learnt(ledger)).reshape(12, -1)
    assert before.size == width
    assert before[:, 3:19].sum() > 24.0, "hours"
    assert before[:, 19:].sum() > 1.0, "and moves"
    accounts.set_policy(ledger, "alice", policy(**other))
    later_s = NOON_S + 5 * DAY_S
    ledger.report(token, [Fix(*HELSINKI, later_s)], now_s=later_s)
    after = np.array(learnt(ledger))
    assert (len(after) == width) == kept
    if kept:
        assert after.reshape(12, -1)[:, 3:19].sum() > 0.9 * before[:, 3:19].sum()


def test_the_paper_and_back_begins_anew(ledger: Ledger) -> None:
    token = shown(member(ledger, **LASTING))
    live(ledger, token, NOON_S)
    for day, settings in enumerate(({"skip_kmh": 30.0}, LASTING)):
        accounts.set_policy(ledger, "alice", policy(**settings))
        at_s = NOON_S + (4 + day) * DAY_S
        assert ledger.report(token, [Fix(*FAR, at_s)], now_s=at_s).answers[0].own
    live(ledger, token, NOON_S + 6 * DAY_S)
    assert sum(number != 0.0 for number in learnt(ledger)) > 6


def test_nothing_of_it_is_left_of_a_deleted_user(tmp_path: Path) -> None:
    exact = LASTING | {"preset": "few-days"}  # whose places are means, with many digits
    with empty_ledger(tmp_path) as opened:
        token = shown(member(opened, **exact))
        live(opened, token, NOON_S)
        member(opened, "keeper", **exact)
        numbers = {repr(number).encode() for number in learnt(opened) if number % 1.0}
        long = {number for number in numbers if len(number) >= 12}  # short ones are found anywhere
        assert len(long) >= 4

        def found() -> int:
            files = [file.read_bytes() for file in tmp_path.glob("ledger.db*")]
            return sum(content.count(number) for content in files for number in long)

        assert found() >= len(long)
        accounts.delete_user(opened, "alice")
        assert found() == 0


def test_after_a_restore_it_is_that_of_the_backup_and_nothing_is_paid_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = (time.time() // DAY_S + 3.5) * DAY_S  # no file is newer
    monkeypatch.setattr(time, "time", lambda: now_s)
    opened = Ledger.open(paths_in(tmp_path))
    token = shown(member(opened, **LASTING))
    live(opened, token, now_s - 2 * DAY_S)
    before = learnt(opened)
    opened.close()
    back_up_sqlite(tmp_path / "ledger.db", tmp_path / "backup")
    opened = Ledger.open(paths_in(tmp_path))
    opened.report(token, [Fix(*FAR, now_s)], now_s=now_s)
    opened.close()
    for left in tmp_path.glob("ledger.db*"):
        left.unlink()
    (tmp_path / "backup").rename(tmp_path / "ledger.db")
    opened = Ledger.open(paths_in(tmp_path), check=False)
    maintenance.accept_restored(opened)
    opened.close()
    opened = Ledger.open(paths_in(tmp_path))
    assert learnt(opened) == before
    closed = opened.report(token, [Fix(*HELSINKI, now_s + 1800)], now_s=now_s + 1800)
    assert closed.answers[0].release is None, "the day may have been paid for"
    assert closed.budget.closed
    assert learnt(opened) == before
    tomorrow_s = now_s + DAY_S
    fresh = opened.report(token, [Fix(*HELSINKI, tomorrow_s)], now_s=tomorrow_s)
    assert fresh.answers[0].own
    assert fresh.answers[0].release is not None
    assert 0.0 < fresh.budget.spent <= math.log(10) / 100.0
    opened.close()
