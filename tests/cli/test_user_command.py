"""`hereish user`: users are added, shown, listed and deleted."""

from __future__ import annotations

import json
import time
from pathlib import Path

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from tests.support.stage import HELSINKI, paths_in, shown
from tests.support.terminal import Terminal, commands_in, output_of


def test_a_user_and_a_token_from_nothing(hereish: Terminal, tmp_path: Path) -> None:
    added = output_of(
        hereish("user", "add", "alice", "--accuracy", "3km", "--time-zone", "Asia/Tokyo")
    )
    assert "For the reports of each day (Asia/Tokyo)" in added
    token = output_of(hereish("token", "new", "alice", "--device", "phone")).strip()
    ledger = Ledger.open(paths_in(tmp_path))
    assert ledger.identify(shown(token)).user == "alice"
    ledger.close()
    assert token not in output_of(hereish("user", "show", "alice"))


def test_a_user_is_shown_in_words_and_for_programs(hereish: Terminal, tmp_path: Path) -> None:
    hereish(
        "user", "add", "alice", "--reports", "30", "--every", "5min", "--on-exhausted", "predict"
    )
    token = output_of(
        hereish("token", "new", "alice", "--device", "phone", "--show-release")
    ).strip()
    ledger = Ledger.open(paths_in(tmp_path))
    [answer] = ledger.report(shown(token), [Fix(*HELSINKI, time.time() - 60)]).answers
    ledger.close()
    assert answer.release is not None
    words = output_of(hereish("user", "show", "alice"))
    assert "reports at least 300 s apart" in words
    assert "in 1 reports" in words
    assert "phone: made" in words
    told = json.loads(output_of(hereish("user", "show", "alice", "--json")))
    assert told["standing"]["spent"] == answer.release.cost
    assert told["policy"]["on_exhausted"] == "predict"
    for text in (words, json.dumps(told)):  # no place, not even a released one
        assert str(answer.release.lat) not in text
        assert str(answer.release.lon) not in text


def test_users_are_listed_disabled_enabled_and_deleted(hereish: Terminal) -> None:
    for name in ("bob", "alice"):
        hereish("user", "add", name, "--accuracy", "3km")
    assert output_of(hereish("user", "list")).split() == ["alice", "bob"]
    hereish("user", "disable", "bob")
    assert "bob  (disabled 2" in output_of(hereish("user", "list"))
    assert "disabled" in output_of(hereish("user", "show", "bob"))
    hereish("user", "enable", "bob")
    assert json.loads(output_of(hereish("user", "list", "--json")))[1] == {
        "name": "bob",
        "disabled": False,
    }
    declined = hereish("user", "delete", "bob", stdin="n\n")
    assert (declined.code, declined.err) == (1, "hereish: nothing was done\n")
    alone = hereish("user", "delete", "bob")
    assert (alone.code, "--yes" in alone.err) == (2, True)
    assert output_of(hereish("user", "list")).split() == ["alice", "bob"]
    output_of(hereish("user", "delete", "bob", "--yes"))
    assert output_of(hereish("user", "list")).split() == ["alice"]
    again = hereish("user", "add", "bob", "--accuracy", "3km")
    assert again.code == 2
    assert "second budget" in again.err


def test_hints_are_commands_that_a_shell_takes(hereish: Terminal, tmp_path: Path) -> None:
    name, file = "Ann O'Neil & co", tmp_path / "a ledger.db"
    output_of(hereish("user", "add", name, "--accuracy", "3km", "--database", file))
    for said in (
        output_of(hereish("user", "add", "$(touch x)", "--accuracy", "3km", "--database", file)),
        output_of(hereish("user", "show", name, "--database", file)),
    ):
        [token] = [words for words in commands_in(said) if words[1:3] == ["token", "new"]]
        assert token[3] in (name, "$(touch x)")
        assert token[-2:] == ["--database", str(file)], "the hint is for this ledger"
        output_of(hereish(*token[1:]))
