"""A new ledger, a restored one, and `hereish ledger`."""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from hereish.cli import _gateway_options
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from tests.support.stage import HELSINKI, paths_in, shown
from tests.support.terminal import Terminal, output_of


def test_a_new_ledger_says_where_everything_is_and_an_old_one_does_not(
    hereish: Terminal, tmp_path: Path
) -> None:
    made = hereish("user", "add", "alice", "--accuracy", "3km")
    for name in ("ledger.db", "key", "mark"):
        assert f"{tmp_path / name}" in made.err
        assert (tmp_path / name).exists()
    assert "made a new ledger" in made.err
    assert "back up the key apart from the ledger" in made.err
    again = hereish("user", "add", "bob", "--accuracy", "3km")
    assert "made a new ledger" not in again.err
    elsewhere = ("--database", tmp_path / "typo.db", "--mark", tmp_path / "its mark")
    other = hereish("user", "list", "--json", *elsewhere)
    assert json.loads(other.out) == []
    assert str(tmp_path / "typo.db") in other.err, "a mistyped name makes a ledger: it is said"


def test_a_new_ledger_does_not_show_the_key_nor_a_password(
    hereish: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = base64.b64encode(bytes(range(32))).decode()
    monkeypatch.setenv("HEREISH_KEY", key)
    made = hereish("user", "add", "alice", "--accuracy", "3km")
    assert "its key is that of HEREISH_KEY" in made.err
    assert key not in made.err + made.out
    assert not (tmp_path / "key").exists()
    told = _gateway_options.format_database("postgresql+psycopg://me:hush@db.example.org/hereish")
    assert "hush" not in told
    assert "db.example.org" in told


def test_a_restored_ledger_is_told_to_go_on(hereish: Terminal, tmp_path: Path) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km", "--every", "0")
    token = output_of(hereish("token", "new", "alice", "--device", "phone")).strip()
    ledger = Ledger.open(paths_in(tmp_path))
    ledger.report(shown(token), [Fix(*HELSINKI, time.time() - 120)])
    with sqlite3.connect(tmp_path / "ledger.db") as raw, sqlite3.connect(tmp_path / "copy") as to:
        raw.backup(to)
    ledger.report(shown(token), [Fix(*HELSINKI, time.time() - 60)])
    ledger.close()
    for left in tmp_path.glob("ledger.db*"):
        left.unlink()
    shutil.copy(tmp_path / "copy", tmp_path / "ledger.db")
    refused = hereish("user", "list")
    assert refused.code == 1
    assert "hereish ledger accept" in refused.err
    assert "restored from a backup" in output_of(hereish("ledger", "status"))
    assert json.loads(output_of(hereish("ledger", "status", "--json")))["restored"] is True
    assert "1 user(s)" in output_of(hereish("ledger", "accept", "--yes"))
    assert "the budget is spent" in output_of(hereish("user", "show", "alice"))
    assert "forgot" in output_of(hereish("ledger", "prune", "--older-than", "90d"))


def test_the_way_to_mend_the_key_is_a_command(hereish: Terminal, tmp_path: Path) -> None:
    key = tmp_path / "my key"
    output_of(hereish("user", "add", "alice", "--accuracy", "3km", "--key-file", key))
    key.chmod(0o644)
    refused = hereish("user", "list", "--key-file", key)
    assert refused.code == 1
    remedy = refused.err.partition("read the key: ")[2]
    assert shlex.split(remedy) == ["chmod", "600", str(key)]
