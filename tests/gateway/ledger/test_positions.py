"""Whole machines that are set back: what clients hold tells of it, and nothing else does."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sqlalchemy import event

from hereish.client import Client, UnavailableError
from hereish.client.positions import POSITION
from hereish.errors import ParameterError
from hereish.gateway.admin import accounts, maintenance
from hereish.gateway.ledger.high_water_mark import LedgerRestoredError
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.positions import HEADER
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.paths import GatewayPaths
from tests.support.hammering import status
from tests.support.ledgers import DAY_S
from tests.support.postgres import Postgres
from tests.support.stage import HELSINKI, member, paths_in, serving, shown

NOON_S = (time.time() // DAY_S - 0.5) * DAY_S  # of yesterday


@dataclass
class Machine:
    """A ledger, its key and its mark, which can be set back together."""

    where: GatewayPaths
    save: Callable[[], None]
    set_back: Callable[[], None]


@pytest.fixture(params=["sqlite", "postgresql"])
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    monkeypatch.delenv("HEREISH_KEY", raising=False)
    disk, snapshot = tmp_path / "disk", tmp_path / "snapshot"
    disk.mkdir()
    if request.param == "sqlite":
        yield Machine(
            paths_in(disk), lambda: copied(disk, snapshot), lambda: copied(snapshot, disk)
        )
        return
    cluster: Postgres = request.getfixturevalue("cluster")
    name = f"t{time.time_ns()}"

    def moved(source: Path, target: Path, from_: str, to: str) -> None:
        copied(source, target)
        cluster.sql("postgres", f"DROP DATABASE IF EXISTS {to}")
        cluster.sql("postgres", f"CREATE DATABASE {to} TEMPLATE {from_}")

    yield Machine(
        paths_in(disk, cluster.fresh(name)),
        lambda: moved(disk, snapshot, name, f"{name}s"),
        lambda: moved(snapshot, disk, f"{name}s", name),
    )


def copied(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


def spend(ledger: Ledger, token: PresentedToken, number: int, from_s: float = NOON_S) -> str:
    """That many releases; the position that the last answer carries."""
    for i in range(number):
        fix = Fix(HELSINKI[0] - i * 0.01, HELSINKI[1], from_s + i)
        reported = ledger.report(token, [fix])
        assert reported.answers[0].own
    return ledger.position(reported.entry_count)


def ask(
    ledger: Ledger, token: PresentedToken, position: str | None, at_s: float | None = None
) -> bool:
    """Whether a new report is taken."""
    fix = Fix(*HELSINKI, NOON_S + 3600.0 if at_s is None else at_s)
    return ledger.report(token, [fix], position=position).answers[0].own


def after_a_snapshot(machine: Machine, number: int = 6) -> tuple[PresentedToken, str]:
    """Two releases are in the snapshot, which is put back after some more."""
    ledger = Ledger.open(machine.where)
    token = shown(member(ledger))
    spend(ledger, token, 2)
    ledger.close()
    machine.save()
    ledger = Ledger.open(machine.where)
    position = spend(ledger, token, number, NOON_S + 60.0)
    ledger.close()
    machine.set_back()
    return token, position


def test_a_snapshot_of_the_whole_machine_is_noticed_and_stops_it_for_everybody(
    machine: Machine,
) -> None:
    token, position = after_a_snapshot(machine)
    ledger, other = Ledger.open(machine.where), Ledger.open(machine.where)
    bob = shown(member(ledger, "bob"))
    with pytest.raises(LedgerRestoredError, match="set back"):
        ask(ledger, token, position)
    for still in (ledger, other):  # also another process
        with pytest.raises(LedgerRestoredError, match="hereish ledger accept"):
            ask(still, bob, None)
        with pytest.raises(LedgerRestoredError):
            still.check_health()
    ledger.close()
    other.close()
    with pytest.raises(LedgerRestoredError, match="a client knows a later state"):
        Ledger.open(machine.where)


def test_it_goes_on_with_the_next_window_once_it_was_accepted(machine: Machine) -> None:
    token, position = after_a_snapshot(machine)
    ledger = Ledger.open(machine.where)
    with pytest.raises(LedgerRestoredError):
        ledger.read_state(token, position)
    ledger.close()
    looked = Ledger.open(machine.where, check=False)
    assert maintenance.read_status(looked).set_back
    assert maintenance.read_status(looked).restored
    with pytest.raises(ParameterError, match="this is a backup"):
        maintenance.reset_mark(looked)
    maintenance.accept_restored(looked)
    assert not maintenance.read_status(looked).restored
    looked.close()
    ledger = Ledger.open(machine.where)
    closed = ledger.report(token, [Fix(*HELSINKI, time.time())], position=position)
    assert closed.answers[0].release is None
    later_s = time.time() + 2 * DAY_S
    fix = Fix(*HELSINKI, later_s)
    assert ledger.report(token, [fix], now_s=later_s, position=position).answers[0].own
    # What it gives out now is higher than what clients hold, though it has fewer entries.
    assert order(ledger.position(1)) > order(position)
    ledger.close()


def order(position: str) -> list[int]:
    return [int(part) for part in position.split(".")[:2]]


def test_a_ledger_that_has_come_as_far_again_is_known_all_the_same(machine: Machine) -> None:
    """By phones, which cannot show what they hold: numbers alone would not tell any more."""
    token, position = after_a_snapshot(machine)
    ledger = Ledger.open(machine.where)
    spend(ledger, token, 9, NOON_S + 600.0)
    with pytest.raises(LedgerRestoredError):
        ask(ledger, token, position)
    ledger.close()


def test_what_the_ledger_has_does_nothing_whoever_shows_it(machine: Machine) -> None:
    ledger, other = Ledger.open(machine.where), Ledger.open(machine.where)
    alice, bob = shown(member(ledger)), shown(member(ledger, "bob"))
    first = ledger.position(0)
    held = [first, spend(ledger, alice, 3), spend(ledger, bob, 3), spend(other, bob, 2, NOON_S + 9)]
    for i, position in enumerate(held * 2):
        assert ask(other if i % 2 else ledger, alice, position, NOON_S + 60.0 + i)
    maintenance.prune(ledger, NOON_S + 2.5)
    accounts.delete_user(other, "bob")
    for opened in (ledger, other, Ledger.open(machine.where)):
        for position in held:
            opened.read_state(alice, position)
        opened.close()


def test_an_invented_position_does_nothing(machine: Machine, tmp_path: Path) -> None:
    ledger = Ledger.open(machine.where)
    token = shown(member(ledger))
    genuine = spend(ledger, token, 2)
    era, number, sealed = genuine.split(".")
    # Of a ledger with another key, and of another one with the same key, both further.
    strangers = []
    for name, key in (("a", None), ("b", machine.where.key_file)):
        folder = tmp_path / name
        folder.mkdir()
        if key is not None:
            shutil.copy(key, folder / "key")
        stranger = Ledger.open(paths_in(folder))
        strangers.append(spend(stranger, shown(member(stranger)), 5))
        stranger.close()
    flipped = ("A" if sealed[20] != "A" else "B").join((sealed[:20], sealed[21:]))
    invented = [
        *("", ".", "..", "9", "9.9.9", "é" * 50, "1.2." + "A" * 100_000, "\0" * 100),
        f"{era}.{int(number) + 1000}.{sealed}",
        f"{int(era) + 1000}.{number}.{sealed}",
        f"{era}.{number}.{flipped}",
        f"{era}.{number}.{sealed[:-8]}",
        f"{era}.{number}.{sealed}AAAA",
        *strangers,
    ]
    for i, position in enumerate(invented):
        assert ask(ledger, token, position, NOON_S + 100.0 + i / 10)
        ledger.read_state(token, position)
    ledger.check_health()
    ledger.close()
    Ledger.open(machine.where).close()


def test_a_process_that_is_behind_by_itself_stops_alone(tmp_path: Path) -> None:
    """The file was moved by copy while a gateway ran: that one is stale, the next is not."""
    where = paths_in(tmp_path)
    stale = Ledger.open(where)
    token = shown(member(stale))
    spend(stale, token, 1)
    source = Path(stale.database.engine.url.database or "")
    moved = source.with_name("moved.db")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("VACUUM INTO ?", (str(moved),))
    for ending in ("-wal", "-shm"):
        source.with_name(source.name + ending).unlink(missing_ok=True)
    moved.replace(source)
    healthy = Ledger.open(where)
    position = spend(healthy, token, 1, NOON_S + 60.0)
    for _ in range(2):
        with pytest.raises(LedgerRestoredError, match="another file"):
            stale.read_state(token, position)
    assert ask(healthy, token, position)
    stale.close()
    healthy.close()


def test_positions_tell_nothing_about_other_users(tmp_path: Path) -> None:
    ledger = Ledger.open(paths_in(tmp_path))
    alice, bob = shown(member(ledger)), shown(member(ledger, "bob"))
    before = spend(ledger, alice, 2)
    again = ledger.position(2)
    spend(ledger, bob, 9)
    after = ledger.position(2)
    assert order(before) == order(again) == order(after)
    assert order(before)[1] == 2
    sealed = [position.split(".")[2] for position in (before, again, after)]
    assert len({*sealed}) == 3  # whether or not somebody reported in between
    assert len({len(text) for text in sealed}) == 1
    ledger.close()


def test_the_era_before_does_nothing_and_a_later_one_tells(machine: Machine) -> None:
    """An operator accepts, and then a snapshot from before that is put back."""
    token, before = after_a_snapshot(machine)
    machine.save()
    looked = Ledger.open(machine.where, check=False)
    maintenance.accept_restored(looked)
    looked.close()
    ledger = Ledger.open(machine.where)
    ask(ledger, token, before)  # the window is closed, but nothing else is wrong
    after = ledger.position(0)
    ledger.close()
    machine.set_back()
    ledger = Ledger.open(machine.where)
    with pytest.raises(LedgerRestoredError):
        ask(ledger, token, after)
    ledger.close()
    looked = Ledger.open(machine.where, check=False)
    maintenance.accept_restored(looked)
    looked.close()
    ledger = Ledger.open(machine.where)  # of an era that is later than both
    for position in (before, after):
        ask(ledger, token, position)
    assert order(ledger.position(0)) > order(after)
    ledger.close()


def test_a_clock_that_was_set_back_too_makes_no_era_that_clients_outlive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = paths_in(tmp_path)
    ledger = Ledger.open(where)
    token = shown(member(ledger))
    spend(ledger, token, 2)
    ledger.close()
    copied(tmp_path, tmp_path.with_name("snapshot"))
    now_s = time.time()
    for days in (2, 1):
        monkeypatch.setattr(time, "time", lambda days=days: now_s + days * DAY_S)
        looked = Ledger.open(where, check=False)
        maintenance.accept_restored(looked)
        if days == 2:
            held = looked.position(0)
            looked.close()
            copied(tmp_path.with_name("snapshot"), tmp_path)
        else:
            looked.close()
    ledger = Ledger.open(where)
    with pytest.raises(LedgerRestoredError):
        ask(ledger, token, held)
    ledger.close()
    looked = Ledger.open(where, check=False)
    maintenance.accept_restored(looked)
    looked.close()
    ledger = Ledger.open(where)
    ask(ledger, token, held)
    ledger.close()


def test_a_position_that_is_known_costs_no_query(tmp_path: Path) -> None:
    ledger = Ledger.open(paths_in(tmp_path))
    token = shown(member(ledger))
    spend(ledger, token, 2)
    queries: list[object] = []
    event.listen(ledger.database.engine, "before_cursor_execute", lambda *a: queries.append(a[2]))
    counts: list[int] = []
    for position in (None, ledger.position(2)):
        queries.clear()
        assert ask(ledger, token, position, NOON_S + 100.0 + len(counts))
        counts.append(len(queries))
    assert counts[0] == counts[1] > 0
    ledger.close()


# Over HTTP, with the client


def test_the_gateway_and_its_client_mean_the_same_header() -> None:
    assert HEADER == POSITION


def test_the_client_shows_what_it_holds_and_a_machine_that_was_set_back_stops(
    tmp_path: Path,
) -> None:
    where, kept = paths_in(tmp_path / "disk"), tmp_path / "positions"
    (tmp_path / "disk").mkdir()
    ledger = Ledger.open(where)
    text = member(ledger)
    other = member(ledger, "bob")
    ledger.close()
    copied(tmp_path / "disk", tmp_path / "snapshot")
    with serving(where) as running, Client(running.url, text, position_file=kept) as client:
        for _ in range(5):
            assert client.report(HELSINKI).released
        port = running.port
    copied(tmp_path / "snapshot", tmp_path / "disk")
    with serving(where, port=port) as running:
        with Client(running.url, other) as bob:  # nobody has told it yet
            assert bob.budget().spent == 0.0
        with (
            Client(running.url, text, position_file=kept, retries=0) as client,
            pytest.raises(UnavailableError),
        ):
            client.report(HELSINKI)
        refused = httpx.get(
            f"{running.url}/v1/budget", headers={"Authorization": f"Bearer {other}"}
        )
        assert refused.status_code == 200  # what was released may be looked at
        with Client(running.url, other, retries=0) as bob, pytest.raises(UnavailableError):
            bob.report(HELSINKI)
        assert status(running.port) == 503
        assert not any("position" in str(line).lower() for line in running.lines())
    done = subprocess.run(  # noqa: S603  # our own command
        [
            *(Path(sys.executable).with_name("hereish"), "ledger", "status"),
            *(
                "--database",
                where.database,
                "--key-file",
                where.key_file,
                "--mark",
                where.mark_file,
            ),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "hereish ledger accept" in done.stdout
    assert "99999" not in done.stdout
