"""`hereish token`: tokens, the primary device and passphrases."""

from __future__ import annotations

import json
from pathlib import Path

from hereish.gateway.http.protocols import owntracks
from hereish.gateway.ledger.ledger import Ledger
from tests.support.stage import paths_in, shown
from tests.support.terminal import Terminal, output_of


def test_a_token_is_revoked_by_its_id_or_whole(hereish: Terminal, tmp_path: Path) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km")
    for whole in (True, False):
        token = output_of(hereish("token", "new", "alice", "--device", "phone")).strip()
        output_of(hereish("token", "revoke", token if whole else token.split("_")[1]))
    assert output_of(hereish("user", "show", "alice")).count("revoked 2") == 2
    unknown = hereish("token", "revoke", "0123456789abcdef")
    assert unknown.code == 1
    assert "no such token" in unknown.err


def test_the_primary_device_is_said_and_chosen(hereish: Terminal) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km", "--every", "45min")
    made = hereish("token", "new", "alice", "--device", "phone")
    assert "The primary device of alice is phone" in made.err
    assert "silent for 90 min" in made.err
    assert "is tablet" in hereish("token", "new", "alice", "--device", "tablet").err
    chosen = output_of(hereish("token", "primary", "alice", "phone", "--silence", "3h"))
    assert "is phone" in chosen
    assert "silent for 180 min" in chosen
    assert "is phone" in hereish("token", "new", "alice", "--device", "watch").err
    words = output_of(hereish("user", "show", "alice"))
    assert [line.split(":")[0].split()[-1] for line in words.splitlines() if "primary" in line] == [
        "phone"
    ]
    told = json.loads(output_of(hereish("user", "show", "alice", "--json")))
    assert (told["primary_device"], told["silence_s"]) == ("phone", 10800.0)
    assert "count alike" in output_of(
        hereish("token", "primary", "alice", "phone", "--silence", "0")
    )
    assert "is ring" not in hereish("token", "new", "alice", "--device", "ring", "--primary").err
    missing = hereish("token", "primary", "alice", "shoe")
    assert missing.code == 1
    assert "hereish user show" in missing.err


def test_the_passphrase_is_asked_for_and_kept_encrypted(hereish: Terminal, tmp_path: Path) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km")
    made = hereish(
        "token", "new", "alice", "--device", "phone", "--passphrase", stdin="open sesame\n"
    )
    token = output_of(made).strip()
    ledger = Ledger.open(paths_in(tmp_path))
    sealed = ledger.identify(shown(token)).passphrase
    assert sealed is not None
    about = f"passphrase {shown(token).id}"
    assert ledger.keys.open(sealed, about) == "open sesame"
    ledger.close()
    assert b"open sesame" not in (tmp_path / "ledger.db").read_bytes()
    long = hereish("token", "new", "alice", "--device", "x", "--passphrase", stdin="x" * 33 + "\n")
    assert long.code == 2
    assert "1 to 32 bytes" in long.err
    assert owntracks.encrypt(b"{}", "open sesame")["_type"] == "encrypted"
