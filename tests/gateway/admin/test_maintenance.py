"""Keys, the high-water mark, restores, retention, deletion, and the tables themselves."""

from __future__ import annotations

import base64
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import insert, select, text

from hereish.errors import ParameterError
from hereish.gateway.admin import accounts, destinations, maintenance
from hereish.gateway.ledger import keys
from hereish.gateway.ledger.database import Database, LedgerUnavailableError
from hereish.gateway.ledger.keys import LedgerKeyError
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.queries import TokenRefusedError
from hereish.gateway.ledger.tables import metadata, receipts, removed, users
from hereish.gateway.observability.usage import UsageCounts
from tests.support.ledgers import DAY_S, empty_ledger
from tests.support.postgres import postgres
from tests.support.stage import HELSINKI, member, paths_in, shown


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with empty_ledger(tmp_path) as opened:
        yield opened


def now_and(seconds: float) -> Fix:
    return Fix(*HELSINKI, time.time() + seconds)


# The tables


def test_migrations_make_the_tables_that_the_code_knows(tmp_path: Path) -> None:
    with postgres() as running:
        for url in (f"sqlite:///{tmp_path / 'l.db'}", running.fresh("tables")):
            database = Database(url)
            database.upgrade()
            database.upgrade()
            with database.reading() as tx:
                assert compare_metadata(MigrationContext.configure(tx), metadata) == []
            database.close()


def test_the_comparison_would_notice_a_column(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'l.db'}")
    database.upgrade()
    with database.writing() as tx:
        tx.execute(text("ALTER TABLE users ADD COLUMN shoe_size INTEGER"))
    with database.reading() as tx:
        assert compare_metadata(MigrationContext.configure(tx), metadata) != []
    database.close()


def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    where = paths_in(tmp_path)
    Ledger.open(where).close()
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ParameterError, match="newer hereish"):
        Ledger.open(where)


def test_a_database_that_is_none_is_refused_in_our_words(tmp_path: Path) -> None:
    for bad in ("mysql://x/y", "nonsense://", "sqlite://", "sqlite:///:memory:"):
        with pytest.raises(ParameterError):
            Database(bad)
    (tmp_path / "ledger.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(LedgerUnavailableError):
        Ledger.open(paths_in(tmp_path))


# The key


def test_a_new_ledger_makes_a_key_that_only_its_owner_can_read(ledger: Ledger) -> None:
    path = ledger.mark.path.with_name("key")
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(base64.b64decode(path.read_bytes())) == 32


def test_a_ledger_without_its_key_is_refused_and_gets_no_new_one(tmp_path: Path) -> None:
    where = paths_in(tmp_path)
    Ledger.open(where).close()
    where.key_file.unlink()
    with pytest.raises(LedgerKeyError, match="there is no key"):
        Ledger.open(where)
    assert not where.key_file.exists()


def test_the_key_of_another_ledger_is_refused(tmp_path: Path) -> None:
    where = paths_in(tmp_path)
    Ledger.open(where).close()
    where.key_file.write_bytes(base64.b64encode(os.urandom(32)))
    with pytest.raises(LedgerKeyError, match="not the key"):
        Ledger.open(where)


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    where = paths_in(tmp_path)
    Ledger.open(where).close()
    where.key_file.chmod(0o644)
    with pytest.raises(LedgerKeyError, match="chmod 600"):
        Ledger.open(where)


def test_the_key_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEREISH_KEY", base64.b64encode(os.urandom(32)).decode())
    where = paths_in(tmp_path)
    Ledger.open(where).close()
    assert not where.key_file.exists()
    for bad in ("", "short", base64.b64encode(b"x" * 31).decode()):
        monkeypatch.setenv("HEREISH_KEY", bad)
        with pytest.raises(LedgerKeyError, match="openssl rand"):
            Ledger.open(where)


def test_a_sealed_value_opens_only_whole_and_in_its_place() -> None:
    ours, theirs = keys.Keys(os.urandom(32)), keys.Keys(os.urandom(32))
    sealed = ours.seal("hush", "here")
    assert ours.open(sealed, "here") == "hush"
    assert b"hush" not in sealed
    assert sealed != ours.seal("hush", "here")
    for box, value, about in (
        (theirs, sealed, "here"),
        (ours, sealed, "there"),
        (ours, sealed[:-1], "here"),
        (ours, b"", "here"),
    ):
        with pytest.raises(LedgerKeyError):
            box.open(value, about)


def test_ids_and_devices_cannot_be_shifted_into_each_other() -> None:
    box = keys.Keys(b"a" * 32)
    assert box.report_key(1, "phone", "x1") != box.report_key(1, "phonex", "1")


# Retention and deletion


def test_pruning_forgets_releases_and_no_spending(ledger: Ledger) -> None:
    token = shown(member(ledger))
    old, new = now_and(-10 * DAY_S)._replace(id="a"), now_and(-60)
    ledger.report(token, [old])
    before = ledger.report(token, [new]).budget
    gone = maintenance.prune(ledger, time.time() - 5 * DAY_S)
    assert gone["releases"] == 1
    assert ledger.report(token, [new]).budget == before
    # Its id was used today, so it is still known; its release is not.
    assert ledger.report(token, [old]).answers[0].release is None
    assert ledger.report(token, [old._replace(id=None)]).answers[0].release is None
    assert len(ledger.history(token, None, 10)) == 1


def test_pruning_forgets_what_waits_to_be_forwarded(ledger: Ledger) -> None:
    token = shown(member(ledger))
    destinations.add_destination(ledger, "alice", "http://127.0.0.1:9/pub", "owntracks")
    ledger.report(token, [now_and(-10 * DAY_S), now_and(-60)])
    assert maintenance.prune(ledger, time.time() - 5 * DAY_S)["deliveries"] == 1
    assert maintenance.read_status(ledger).waiting == 1


def test_pruning_everything_hands_no_budget_back(ledger: Ledger) -> None:
    token = shown(member(ledger, window="none"))  # an hour ago may be yesterday
    ledger.report(token, [now_and(-3600 + i) for i in range(100)])
    spent = ledger.report(token, []).budget.spent
    maintenance.prune(ledger, time.time() + DAY_S)
    reported = ledger.report(token, [now_and(-1)])
    assert reported.budget.spent >= spent > 0
    with ledger.database.reading() as tx:
        assert tx.execute(select(receipts)).all() == []


def test_a_deleted_user_is_gone_and_the_name_gets_no_second_budget(
    ledger: Ledger, tmp_path: Path
) -> None:
    text_ = member(ledger, "Zebulon")
    ledger.report(shown(text_), [now_and(-60)])
    accounts.delete_user(ledger, "Zebulon")
    with pytest.raises(TokenRefusedError):
        ledger.report(shown(text_), [now_and(-30)])
    with pytest.raises(ParameterError, match="second budget"):
        member(ledger, " Zebulon ")
    with ledger.database.writing() as tx:
        assert tx.execute(select(users)).all() == []
        assert len(tx.execute(select(removed)).all()) == 1
    ledger.database.close()
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"Zebulon" not in (tmp_path / "ledger.db").read_bytes()


def test_counts_go_on_when_somebody_was_deleted(ledger: Ledger) -> None:
    tallies = UsageCounts()
    for name in ("alice", "bob"):
        device = ledger.identify(shown(member(ledger, name)))
        tallies.add(device, "2026-05-05", 3)
    accounts.delete_user(ledger, "alice")
    tallies.flush(ledger)
    assert tallies.on_day(ledger, device.user_id, "2026-05-05") == {"phone": 3}


def test_the_ledger_is_for_its_owner_s_eyes(ledger: Ledger, tmp_path: Path) -> None:
    ledger.report(shown(member(ledger)), [now_and(-60)])
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path.name


def test_what_is_in_the_way_of_a_ledger_is_named(tmp_path: Path) -> None:
    where = paths_in(tmp_path / "nowhere")
    with pytest.raises(ParameterError, match="nowhere of the ledger does not exist"):
        Ledger.open(where)
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(ParameterError, match="cannot be written"):
        Ledger.open(paths_in(tmp_path))
    nobody = "postgresql+psycopg://hereish:hush@127.0.0.1:9/none"
    with pytest.raises(LedgerUnavailableError, match=r"127\.0\.0\.1:9/none") as told:
        Ledger.open(paths_in(tmp_path, nobody))
    assert "hush" not in str(told.value)


def test_two_spellings_of_a_name_are_one_user(ledger: Ledger) -> None:
    member(ledger, "Zoë")
    with pytest.raises(ParameterError, match="already"):
        member(ledger, " Zoe\u0308 ")
    for bad in ("", " ", "a/b", "a:b", "x" * 65, "a\nb"):
        with pytest.raises(ParameterError, match="name of a user"):
            member(ledger, bad)


def test_tokens_are_kept_as_digests(ledger: Ledger, tmp_path: Path) -> None:
    token = member(ledger)
    ledger.report(shown(token), [now_and(-60)])
    secret = token.rpartition("_")[2]
    for path in tmp_path.iterdir():
        assert secret.encode() not in path.read_bytes()
    assert repr(shown(token)) == "PresentedToken(…)"


def test_a_failing_transaction_leaves_nothing(ledger: Ledger) -> None:
    member(ledger)
    with pytest.raises(LedgerUnavailableError), ledger.database.writing() as tx:
        tx.execute(insert(users), {"name": "bob", "created_s": 0.0, "forwards": 0})
        tx.execute(insert(users), {"name": "alice", "created_s": 0.0, "forwards": 0})
    assert [name for name, _ in accounts.list_users(ledger)] == ["alice"]
