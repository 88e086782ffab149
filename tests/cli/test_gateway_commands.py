"""The commands of an operator, as a shell calls them."""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from hereish.cli import _gateway_options
from hereish.gateway.http.protocols import owntracks
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from tests.support.stage import HELSINKI, free_port, places_in, serving, shown
from tests.support.terminal import Done, Terminal, in_a_process


@pytest.fixture
def hereish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A shell with a ledger of its own."""
    monkeypatch.delenv("HEREISH_KEY", raising=False)
    monkeypatch.setenv("HEREISH_DATABASE", str(tmp_path / "ledger.db"))
    monkeypatch.setenv("HEREISH_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("HEREISH_MARK", str(tmp_path / "mark"))
    return Terminal(monkeypatch)


def well(done: Done) -> str:
    assert done.code == 0, done.err
    return done.out


def test_a_user_and_a_token_from_nothing(hereish: Terminal, tmp_path: Path) -> None:
    added = well(hereish("user", "add", "alice", "--accuracy", "3km", "--time-zone", "Asia/Tokyo"))
    assert "For the reports of each day (Asia/Tokyo)" in added
    token = well(hereish("token", "new", "alice", "--device", "phone")).strip()
    ledger = Ledger.open(places_in(tmp_path))
    assert ledger.device(shown(token)).user == "alice"
    ledger.close()
    assert token not in well(hereish("user", "show", "alice"))


def hints(said: str) -> list[list[str]]:
    """The commands that a text shows, each as a shell would take it apart."""
    return [
        shlex.split(found) for found in re.findall(r"\bhereish (?:plan|token|user) .*$", said, re.M)
    ]


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
    told = _gateway_options.database_shown("postgresql+psycopg://me:hush@db.example.org/hereish")
    assert "hush" not in told
    assert "db.example.org" in told


def test_hints_are_commands_that_a_shell_takes(hereish: Terminal, tmp_path: Path) -> None:
    name, file = "Ann O'Neil & co", tmp_path / "a ledger.db"
    well(hereish("user", "add", name, "--accuracy", "3km", "--database", file))
    for said in (
        well(hereish("user", "add", "$(touch x)", "--accuracy", "3km", "--database", file)),
        well(hereish("user", "show", name, "--database", file)),
    ):
        [token] = [words for words in hints(said) if words[1:3] == ["token", "new"]]
        assert token[3] in (name, "$(touch x)")
        assert token[-2:] == ["--database", str(file)], "the hint is for this ledger"
        well(hereish(*token[1:]))


README_POLICY = ("--accuracy", "3km", "--time-zone", "Europe/Helsinki")


def test_a_policy_that_ends_about_noon_says_so(hereish: Terminal) -> None:
    added = well(hereish("user", "add", "alice", *README_POLICY))
    [first, last] = re.findall(r"gone between (\d\d:\d\d) and (\d\d:\d\d)", added)[0]
    assert "10:00" <= first < "12:30" < last <= "15:00"
    assert re.search(r"\(at 0[67]:\d\d if every guess fails\)", added)
    assert "nothing is released until midnight" in added
    assert "made-up" in added
    changed = well(hereish("user", "policy", "alice", *README_POLICY, "--on-exhausted", "predict"))
    assert f"gone between {first} and {last}" in changed
    assert "the last release is repeated, untested, until midnight" in changed


def test_the_remedies_are_valid_and_last_the_day(hereish: Terminal) -> None:
    name = "Ann O'Neil"
    added = well(hereish("user", "add", name, *README_POLICY))
    remedies = [words for words in hints(added) if words[1:3] == ["user", "policy"]]
    options = {option for words in remedies for option in words if option.startswith("--")}
    assert options == {"--accuracy", "--every", "--reports", "--time-zone"}
    for words in remedies:
        assert words[3] == name
        zone = words.index("--time-zone")
        assert words[zone + 1] == "Europe/Helsinki", "all of it is said anew"
        said = well(hereish(*words[1:]))
        assert "lasts the day" in said
        assert "gone between" not in said
        planned = well(hereish("plan", *words[4:]))
        assert "lasts the day" in planned


def test_settings_of_a_file_are_remedied_by_a_longer_interval_alone(
    hereish: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "my settings.toml").write_text(
        "[promise]\nlevel = 2.3\nradius_m = 100.0\n[mechanism]\nnoise_accuracy_m = 2500.0\n"
        "eta = 0.4\ngamma = 0.9\nprediction_rate = 0.8\n"
    )
    added = well(hereish("user", "add", "alice", "--settings", tmp_path / "my settings.toml"))
    [words] = [words for words in hints(added) if words[1:3] == ["user", "policy"]]
    assert "--every" in words
    assert "lasts the day" in well(hereish(*words[1:]))


def test_days_in_utc_that_nobody_asked_for_are_noted(hereish: Terminal) -> None:
    note = "days begin at midnight UTC; give --time-zone"
    assert note in hereish("user", "add", "alice", "--accuracy", "3km").err
    assert note not in hereish("user", "add", "bob", *README_POLICY).err
    said = hereish("user", "add", "eve", "--accuracy", "3km", "--time-zone", "UTC")
    assert note not in said.err
    never = hereish("user", "add", "joe", "--accuracy", "3km", "--window", "none")
    assert note not in never.err


def test_a_user_is_shown_in_words_and_for_programs(hereish: Terminal, tmp_path: Path) -> None:
    hereish(
        "user", "add", "alice", "--reports", "30", "--every", "5min", "--on-exhausted", "predict"
    )
    token = well(hereish("token", "new", "alice", "--device", "phone", "--show-release")).strip()
    ledger = Ledger.open(places_in(tmp_path))
    [answer] = ledger.report(shown(token), [Fix(*HELSINKI, time.time() - 60)]).answers
    ledger.close()
    assert answer.release is not None
    words = well(hereish("user", "show", "alice"))
    assert "reports at least 300 s apart" in words
    assert "in 1 reports" in words
    assert "phone: made" in words
    told = json.loads(well(hereish("user", "show", "alice", "--json")))
    assert told["standing"]["spent"] == answer.release.cost
    assert told["policy"]["on_exhausted"] == "predict"
    for text in (words, json.dumps(told)):  # no place, not even a released one
        assert str(answer.release.lat) not in text
        assert str(answer.release.lon) not in text


def test_users_are_listed_disabled_enabled_and_deleted(hereish: Terminal) -> None:
    for name in ("bob", "alice"):
        hereish("user", "add", name, "--accuracy", "3km")
    assert well(hereish("user", "list")).split() == ["alice", "bob"]
    hereish("user", "disable", "bob")
    assert "bob  (disabled 2" in well(hereish("user", "list"))
    assert "disabled" in well(hereish("user", "show", "bob"))
    hereish("user", "enable", "bob")
    assert json.loads(well(hereish("user", "list", "--json")))[1] == {
        "name": "bob",
        "disabled": False,
    }
    declined = hereish("user", "delete", "bob", stdin="n\n")
    assert (declined.code, declined.err) == (1, "hereish: nothing was done\n")
    alone = hereish("user", "delete", "bob")
    assert (alone.code, "--yes" in alone.err) == (2, True)
    assert well(hereish("user", "list")).split() == ["alice", "bob"]
    well(hereish("user", "delete", "bob", "--yes"))
    assert well(hereish("user", "list")).split() == ["alice"]
    again = hereish("user", "add", "bob", "--accuracy", "3km")
    assert again.code == 2
    assert "second budget" in again.err


def test_a_policy_of_tuned_settings(hereish: Terminal, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        "[promise]\nlevel = 2.3\nradius_m = 100.0\n[mechanism]\nnoise_accuracy_m = 2500.0\n"
        "eta = 0.4\ngamma = 0.9\nprediction_rate = 0.8\n"
        "[skip]\nspeed_kmh = 20.0\nlimit_m = 900.0\nrestart_after_passed_test = true\n"
    )
    well(hereish("user", "add", "alice", "--settings", tmp_path / "s.toml"))
    told = json.loads(well(hereish("user", "show", "alice", "--json")))["policy"]
    assert (told["accuracy_m"], told["eta"], told["skip_since"]) == (2500.0, 0.4, "tested")
    twice = hereish("user", "add", "bob", "--settings", tmp_path / "s.toml", "--accuracy", "3km")
    assert twice.code == 2
    assert "leave out --accuracy" in twice.err


def test_a_changed_policy_says_when_it_applies(hereish: Terminal, tmp_path: Path) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km", "--every", "0")
    assert "nothing was reported yet" in well(hereish("user", "policy", "alice", "--reports", "30"))
    token = well(hereish("token", "new", "alice", "--device", "phone")).strip()
    ledger = Ledger.open(places_in(tmp_path))
    ledger.report(shown(token), [Fix(*HELSINKI, time.time() - 60)])
    ledger.close()
    changed = well(hereish("user", "policy", "alice", "--accuracy", "4km"))
    assert "policy 3 of alice applies from the next window on" in changed
    assert "waits for a later window: predictive, 4 km" in well(hereish("user", "show", "alice"))


def test_a_token_is_revoked_by_its_id_or_whole(hereish: Terminal, tmp_path: Path) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km")
    for whole in (True, False):
        token = well(hereish("token", "new", "alice", "--device", "phone")).strip()
        well(hereish("token", "revoke", token if whole else token.split("_")[1]))
    assert well(hereish("user", "show", "alice")).count("revoked 2") == 2
    unknown = hereish("token", "revoke", "0123456789abcdef")
    assert unknown.code == 1
    assert "no such token" in unknown.err


def test_the_primary_device_is_said_and_chosen(hereish: Terminal) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km", "--every", "45min")
    made = hereish("token", "new", "alice", "--device", "phone")
    assert "The primary device of alice is phone" in made.err
    assert "silent for 90 min" in made.err
    assert "is tablet" in hereish("token", "new", "alice", "--device", "tablet").err
    chosen = well(hereish("token", "primary", "alice", "phone", "--silence", "3h"))
    assert "is phone" in chosen
    assert "silent for 180 min" in chosen
    assert "is phone" in hereish("token", "new", "alice", "--device", "watch").err
    words = well(hereish("user", "show", "alice"))
    assert [line.split(":")[0].split()[-1] for line in words.splitlines() if "primary" in line] == [
        "phone"
    ]
    told = json.loads(well(hereish("user", "show", "alice", "--json")))
    assert (told["primary_device"], told["silence_s"]) == ("phone", 10800.0)
    assert "count alike" in well(hereish("token", "primary", "alice", "phone", "--silence", "0"))
    assert "is ring" not in hereish("token", "new", "alice", "--device", "ring", "--primary").err
    missing = hereish("token", "primary", "alice", "shoe")
    assert missing.code == 1
    assert "hereish user show" in missing.err


def test_the_passphrase_is_asked_for_and_kept_encrypted(hereish: Terminal, tmp_path: Path) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km")
    made = hereish(
        "token", "new", "alice", "--device", "phone", "--passphrase", stdin="open sesame\n"
    )
    token = well(made).strip()
    ledger = Ledger.open(places_in(tmp_path))
    sealed = ledger.device(shown(token)).passphrase
    assert sealed is not None
    about = f"passphrase {shown(token).id}"
    assert ledger.keys.open(sealed, about) == "open sesame"
    ledger.close()
    assert b"open sesame" not in (tmp_path / "ledger.db").read_bytes()
    long = hereish("token", "new", "alice", "--device", "x", "--passphrase", stdin="x" * 33 + "\n")
    assert long.code == 2
    assert "1 to 32 bytes" in long.err
    assert owntracks.encrypt(b"{}", "open sesame")["_type"] == "encrypted"


def test_destinations_are_added_listed_and_removed(hereish: Terminal) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km")
    added = hereish(
        *("forward", "add", "alice", "https://recorder.example.org/pub", "--format", "owntracks"),
        *("--login", "alice", "--password", "--header", "X-Limit-U:alice"),
        stdin="hush-hush\n",
    )
    assert "owntracks to https://recorder.example.org/" in well(added)
    listed = well(hereish("forward", "list", "alice"))
    assert "0 waiting" in listed
    assert "hush" not in listed + well(hereish("forward", "list", "alice", "--json"))
    well(hereish("forward", "remove", "alice", "1"))
    assert well(hereish("forward", "list", "alice")) == ""
    bad = hereish("forward", "add", "alice", "ftp://x/y", "--format", "owntracks")
    assert bad.code == 2
    assert "https" in bad.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("user", "add", "a"), "--accuracy, such as 3km, or --reports"),
        (("user", "add", "a", "--accuracy", "3"), "has no unit"),
        (("user", "add", "a", "--accuracy", "3km", "--time-zone", "Nix"), "IANA name"),
        (("user", "add", "a", "--accuracy", "3km", "--window", "1s"), "at least a minute"),
        (("user", "add", "a/b", "--accuracy", "3km"), "name of a user"),
        (("user", "list", "--database", "mysql://x"), "postgresql+psycopg://"),
        (("ledger", "prune", "--older-than", "90"), "has no unit"),
        (("forward", "list", "nobody"), "there is no user"),
    ],
)
def test_what_is_asked_wrongly_is_answered_clearly(
    hereish: Terminal, words: tuple[str, ...], expected: str
) -> None:
    done = hereish(*words)
    assert done.code in (1, 2)
    assert expected in done.err


def test_a_restored_ledger_is_told_to_go_on(hereish: Terminal, tmp_path: Path) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km", "--every", "0")
    token = well(hereish("token", "new", "alice", "--device", "phone")).strip()
    ledger = Ledger.open(places_in(tmp_path))
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
    assert "restored from a backup" in well(hereish("ledger", "status"))
    assert json.loads(well(hereish("ledger", "status", "--json")))["restored"] is True
    assert "1 user(s)" in well(hereish("ledger", "accept", "--yes"))
    assert "the budget is spent" in well(hereish("user", "show", "alice"))
    assert "forgot" in well(hereish("ledger", "prune", "--older-than", "90d"))


def test_serve_refuses_a_port_that_is_taken_and_a_ledger_without_its_key(tmp_path: Path) -> None:
    where = places_in(tmp_path)
    Ledger.open(where).close()
    words = ("--database", where.database, "--key-file", where.key_file, "--mark", where.mark)
    with serving(where) as running:
        taken = in_a_process("serve", *words, "--port", running.port)
    assert taken.returncode == 1
    assert "choose another --host or --port" in taken.stderr
    where.key_file.write_bytes(base64.b64encode(bytes(32)))
    strange = in_a_process("serve", *words, "--port", free_port())
    assert strange.returncode == 1
    assert "not the key" in strange.stderr


def test_the_demo_prints_a_curl_line_that_works(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed, so the line was not tried")
    port = free_port()
    program = [str(Path(sys.executable).parent / "hereish"), "serve", "--demo", "--port", str(port)]
    with (tmp_path / "out").open("wb") as out:
        demo = subprocess.Popen(program, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603  # ours
    try:
        for _ in range(1200):
            if _is_ready(port):
                break
            time.sleep(0.05)
        said = (tmp_path / "out").read_text("utf-8")
        [line] = re.findall(r"^curl .*$", said, re.M)
        done = subprocess.run(  # noqa: S603  # what it printed is what is tried
            ["bash", "-c", line],  # noqa: S607  # on PATH
            capture_output=True,
            check=True,
        )
        told = json.loads(done.stdout)
        assert told["kind"] == "hard"
        assert told["spent"] > 0
        page = httpx.get(f"http://127.0.0.1:{port}/")
        assert page.status_code == 200
    finally:
        demo.terminate()
        assert demo.wait(30) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/healthz")


def test_serve_says_what_it_made_and_that_others_can_reach_it(tmp_path: Path) -> None:
    where, port = places_in(tmp_path), free_port()
    words = ("--database", where.database, "--key-file", where.key_file, "--mark", where.mark)
    program = [str(Path(sys.executable).parent / "hereish"), "serve", *map(str, words)]
    host = "0.0.0.0"  # noqa: S104  # for a moment; this is what is warned of
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        served = subprocess.Popen(  # noqa: S603  # ours
            [*program, "--host", host, "--port", str(port)], stdout=out, stderr=err
        )
    try:
        for _ in range(1200):
            if _is_ready(port):
                break
            time.sleep(0.05)
    finally:
        served.terminate()
        assert served.wait(30) == 0
    said, logged = ((tmp_path / name).read_text("utf-8") for name in ("out", "err"))
    assert "made a new ledger" in said
    assert str(where.key_file) in said
    [first] = [words for words in hints(said) if words[1:3] == ["user", "add"]]
    assert first[-6:-4] == ["--database", where.database], "the hint is for this ledger"
    warning, *lines = logged.splitlines()
    assert warning.startswith("hereish: warning: other machines can reach 0.0.0.0")
    assert all(json.loads(line) for line in lines), "the rest is the log"


def test_the_way_to_mend_the_key_is_a_command(hereish: Terminal, tmp_path: Path) -> None:
    key = tmp_path / "my key"
    well(hereish("user", "add", "alice", "--accuracy", "3km", "--key-file", key))
    key.chmod(0o644)
    refused = hereish("user", "list", "--key-file", key)
    assert refused.code == 1
    remedy = refused.err.partition("read the key: ")[2]
    assert shlex.split(remedy) == ["chmod", "600", str(key)]


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False
