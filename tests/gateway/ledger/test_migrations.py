"""Ledgers of earlier versions go on as they were."""

from __future__ import annotations

import time

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import text

from hereish.gateway.admin import accounts
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.database import Database
from hereish.gateway.ledger.high_water_mark import HighWaterMark, next_era
from hereish.gateway.ledger.keys import load_keys
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.paths import GatewayPaths
from tests.support.stage import HELSINKI, member, policy, shown

_DEVICES = (("phone", 1.0, None), ("tablet", 3.0, None), ("lost phone", 4.0, 5.0))


@pytest.mark.parametrize("paths", ["sqlite", "postgresql"], indirect=True)
def test_a_ledger_of_the_first_tables_keeps_all_and_its_newest_device_is_primary(
    paths: GatewayPaths,
) -> None:
    made = {name: tokens.generate_token() for name, _, _ in _DEVICES}
    first_tables(paths, made)
    ledger = Ledger.open(paths)
    assert accounts.primary_device(ledger, "alice") == ("tablet", 3600.0)
    shown_ = accounts.describe_user(ledger, "alice")
    assert [token.device for token in shown_.tokens] == ["phone", "tablet", "lost phone"]
    assert accounts.describe_user(ledger, "bob").primary_device is None
    with ledger.database.reading() as tx:
        assert tx.execute(text("SELECT count(*) FROM receipts")).scalar_one() == 1
    assert ledger.report(shown(made["phone"]), [Fix(*HELSINKI, time.time())]).answers[0].own
    ledger.close()
    again = Ledger.open(paths)
    assert accounts.describe_user(again, "alice").entries == 1
    again.close()


@pytest.mark.parametrize("paths", ["sqlite", "postgresql"], indirect=True)
def test_states_and_entries_from_before_there_were_limits_go_on_as_they_are(
    paths: GatewayPaths,
) -> None:
    ledger = Ledger.open(paths)
    token = shown(member(ledger, reports=2, mechanism="independent"))
    now_s = time.time()
    for ago_s in (500.0, 400.0, 300.0):  # the last of which is refused
        ledger.report(token, [Fix(*HELSINKI, now_s - ago_s)])
    before = _states(ledger)
    with ledger.database.writing() as tx:  # as 0003 has left it
        tx.execute(text("ALTER TABLE entries DROP COLUMN full_limit"))
        tx.execute(text("UPDATE alembic_version SET version_num = '0003'"))
    ledger.close()
    again = Ledger.open(paths)
    assert _states(again) == before
    assert "limit" not in before[0]
    [answer] = again.report(token, [Fix(*HELSINKI, now_s - 300.0)]).answers
    assert answer.release is None
    assert answer.full is not None
    again.close()


def _states(ledger: Ledger) -> list[str]:
    with ledger.database.reading() as tx:
        return [str(state) for state in tx.execute(text("SELECT state FROM users")).scalars()]


def first_tables(where: GatewayPaths, made: dict[str, str]) -> None:
    """As the first version left it: tables of revision 0001, a user with devices, one without."""
    database = Database(where.database)
    config = Config()
    config.set_main_option("script_location", "hereish.gateway.ledger:migrations")
    keys, era = load_keys(where.key_file, create=True), next_era()
    with database.writing() as tx:
        config.attributes["connection"] = tx
        command.upgrade(config, "0001")
        about = {"era": era, "check": keys.check}
        tx.execute(
            text(
                "INSERT INTO ledger (id, era, key_check, created_s) VALUES ('a', :era, :check, 0)"
            ),
            about,
        )
        for number, name in ((1, "alice"), (2, "bob")):
            row = {"id": number, "name": name, "body": policy().to_json()}
            tx.execute(
                text(
                    "INSERT INTO users (id, name, created_s, policy_id, forwards) "
                    "VALUES (:id, :name, 0, :id, 0)"
                ),
                row,
            )
            tx.execute(
                text(
                    "INSERT INTO policies (id, user_id, version, body, created_s) "
                    "VALUES (:id, :id, 1, :body, 0)"
                ),
                row,
            )
        for device, created_s, revoked_s in _DEVICES:
            token = shown(made[device])
            tx.execute(
                text(
                    "INSERT INTO tokens (id, user_id, device, digest, created_s, revoked_s, "
                    "show_release) VALUES (:id, 1, :device, :digest, :created, :revoked, false)"
                ),
                {
                    "id": token.id,
                    "device": device,
                    "digest": token.digest,
                    "created": created_s,
                    "revoked": revoked_s,
                },
            )
        tx.execute(
            text(
                "INSERT INTO receipts (user_id, key, at_s, own, made_s) "
                "VALUES (1, :key, 0, false, 0)"
            ),
            {"key": b"of a free answer"},
        )
    database.close()
    HighWaterMark(where.mark_file, "a", era, "new").close()
