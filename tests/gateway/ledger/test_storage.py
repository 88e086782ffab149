"""What the ledger holds and leaves: it does not grow with free answers, a deleted user is gone to
the last byte, and to ask whether it is alive costs next to nothing.
"""

from __future__ import annotations

import json
import random
import sqlite3
import struct
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import event, func, select

from hereish.gateway.admin import accounts, destinations, maintenance
from hereish.gateway.ledger import health
from hereish.gateway.ledger.database import LedgerUnavailableError
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.tables import entries, receipts
from hereish.gateway.observability.usage import UsageCounts
from tests.support.ledgers import DAY_S, NOON_S
from tests.support.postgres import Postgres
from tests.support.stage import HELSINKI, member, paths_in, policy, shown


def rows(ledger: Ledger) -> tuple[int, int]:
    with ledger.database.reading() as tx:
        counts = [tx.execute(select(func.count()).select_from(t)) for t in (entries, receipts)]
        a, b = (int(count.scalar_one()) for count in counts)
        return a, b


# Free answers


def named(number: int, from_s: float, step_s: float) -> list[Fix]:
    return [Fix(*HELSINKI, from_s + i * step_s, f"{from_s} {i}") for i in range(number)]


def test_ten_thousand_free_answers_with_new_ids_add_nothing(ledger: Ledger, tmp_path: Path) -> None:
    token = shown(member(ledger, interval_s=1800.0))
    ledger.report(token, [Fix(*HELSINKI, NOON_S, "first")])
    before = rows(ledger)
    sizes = [file.stat().st_size for file in sorted(tmp_path.glob("ledger.db*"))]
    for batch in range(10):  # sooner than the interval, and late
        ledger.report(token, named(1000, NOON_S + 1 + batch - 5.5, 1e-3))
    assert rows(ledger) == before == (1, 1)
    assert sizes == [file.stat().st_size for file in sorted(tmp_path.glob("ledger.db*"))]


@pytest.mark.parametrize("waits", [False, True])
def test_neither_do_those_of_a_window_whose_budget_is_spent(ledger: Ledger, waits: bool) -> None:
    """Also while another policy waits for its end, where each used to be written down."""
    token = shown(member(ledger))
    for i in range(60):
        spent = ledger.report(token, [Fix(60.0 + i % 2, 25.0, NOON_S + i)])
    assert spent.budget.exhausted
    if waits:
        accounts.set_policy(ledger, "alice", policy(accuracy_m=4000.0))
    before = rows(ledger)
    first = [ledger.report(token, [Fix(*HELSINKI, NOON_S + 100.0 + i, str(i))]) for i in range(5)]
    for batch in range(5):
        ledger.report(token, named(1000, NOON_S + 200.0 + 1100 * batch, 1.0))
    assert rows(ledger) == before
    # What was said stays said, whatever policy is set meanwhile.
    if waits:
        accounts.set_policy(ledger, "alice", policy(window="3600"))
    for i, told in enumerate(first):
        again = ledger.report(token, [Fix(*HELSINKI, NOON_S + 100.0 + i, str(i))])
        assert again.answers[0].release is told.answers[0].release is None
    assert ledger.report(token, [Fix(*HELSINKI, NOON_S + DAY_S)]).answers[0].own


# Deleted users


class Traces:
    """All that the ledger was ever told or told about a user, in the ways in which it is kept."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.needles = {name.encode(), f"{name} phone".encode()}
        self.needles |= {json.dumps(text).encode() for text in (name, f"{name} phone")}

    def release(self, lat: float, lon: float) -> None:
        """As columns, in either order of bytes, and as the JSON of a run or of an entry."""
        self.needles |= {
            struct.pack(">dd", lat, lon),
            struct.pack("<dd", lat, lon),
            f"{lat!r}, {lon!r}".encode(),
            f'"lat": {lat!r}, "lon": {lon!r}'.encode(),
        }

    def found(self, folder: Path) -> dict[str, int]:
        """How often they are in each file of the database."""
        counts = {}
        for file in sorted(folder.glob("ledger.db*")):
            content = file.read_bytes()
            counts[file.name] = sum(content.count(needle) for needle in self.needles)
        return counts


def busy_ledger(ledger: Ledger, number: int) -> dict[str, Traces]:
    """Users who report in turn, some of them forwarded, so that pages are split and reused."""
    rng = random.Random(7)  # noqa: S311  # whose turn it is
    traces, tokens, tallies = {}, {}, UsageCounts()
    for i in range(number):
        name = f"Zeb{i:02d}ulon"
        traces[name] = Traces(name)
        tokens[name] = shown(member(ledger, name, f"{name} phone", window="60"))
        traces[name].needles |= {tokens[name].id.encode(), tokens[name].digest}
        if i % 2:
            destinations.add_destination(ledger, name, "http://127.0.0.1:9/pub", "owntracks")
    for turn in range(40):
        for name in rng.sample(sorted(tokens), number * 2 // 3):
            fix = Fix(60 + rng.random(), 24.0, NOON_S + 7 * turn, f"{name} {turn}")
            reported = ledger.report(tokens[name], [fix])
            release = reported.answers[0].release
            if release is not None:
                traces[name].release(release.lat, release.lon)
            tallies.add(reported.device, "2025-11-03", 1)
        tallies.flush(ledger)
    return traces


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
def test_no_byte_of_a_deleted_user_is_left_while_a_gateway_runs(
    ledger: Ledger, tmp_path: Path
) -> None:
    """By a look at the files, their log and its index; others read and report meanwhile."""
    traces = busy_ledger(ledger, 12)
    running = Ledger.open(paths_in(tmp_path))
    keeper = shown(member(running, "keeper"))
    end = threading.Event()

    def serve() -> None:
        at_s = NOON_S
        while not end.wait(0.005):
            at_s += 60
            running.report(keeper, [Fix(50.0, 10.0, at_s)])
            running.catch_up()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        for name in ("Zeb01ulon", "Zeb04ulon", "Zeb07ulon"):
            gone = traces.pop(name)
            assert sum(gone.found(tmp_path).values()) > 10  # the search does find
            accounts.delete_user(ledger, name)
            assert set(gone.found(tmp_path).values()) == {0}, name
    finally:
        end.set()
        serving.join()
    running.close()
    for trace in traces.values():  # and only theirs is gone
        assert sum(trace.found(tmp_path).values()) > 10


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
def test_what_earlier_versions_left_in_free_space_goes_with_a_deleted_user(
    ledger: Ledger, tmp_path: Path
) -> None:
    gone = busy_ledger(ledger, 4)["Zeb01ulon"]
    raw = sqlite3.connect(tmp_path / "ledger.db")
    raw.execute("PRAGMA secure_delete = OFF")
    with raw:
        raw.execute("CREATE TABLE scraps (words TEXT)")
        raw.executemany("INSERT INTO scraps VALUES (?)", [(gone.name * 9,)] * 500)
    with raw:
        raw.execute("DROP TABLE scraps")
    raw.close()
    accounts.delete_user(ledger, gone.name)
    assert set(gone.found(tmp_path).values()) == {0}


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
def test_who_cannot_be_scrubbed_is_deleted_all_the_same_and_it_is_said(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = busy_ledger(ledger, 4)["Zeb01ulon"]
    reader = sqlite3.connect(tmp_path / "ledger.db")
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchone()  # and stays there
    event.listen(
        ledger.database.engine, "connect", lambda c, _: c.execute("PRAGMA busy_timeout = 50")
    )
    ledger.database.engine.dispose()
    with pytest.raises(LedgerUnavailableError, match="call this again"):
        accounts.delete_user(ledger, gone.name)
    assert gone.name not in [name for name, _ in accounts.list_users(ledger)]
    reader.close()
    accounts.delete_user(ledger, gone.name)
    assert set(gone.found(tmp_path).values()) == {0}
    with pytest.raises(accounts.NotFoundError):
        accounts.delete_user(ledger, "nobody")


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
def test_pruning_leaves_nothing_of_what_it_forgets(ledger: Ledger, tmp_path: Path) -> None:
    token = shown(member(ledger))
    trace = Traces("nobody of that name")
    for i in range(30):
        [answer] = ledger.report(token, [Fix(60.0 + i / 10, 25.0, NOON_S + DAY_S * i)]).answers
        if i < 20 and answer.release is not None:  # the run remembers the last ones
            trace.release(answer.release.lat, answer.release.lon)
    assert sum(trace.found(tmp_path).values()) > 20
    maintenance.prune(ledger, NOON_S + DAY_S * 25)
    assert set(trace.found(tmp_path).values()) == {0}


# Whether it is alive


def test_to_ask_whether_it_is_alive_costs_no_query_each(ledger: Ledger) -> None:
    queries: list[object] = []
    event.listen(ledger.database.engine, "before_cursor_execute", lambda *a: queries.append(a[2]))
    for _ in range(100):
        ledger.check_health()
    assert 0 < len(queries) < 10


def test_a_dead_database_is_noticed_in_time_and_so_is_its_return(
    tmp_path: Path, cluster: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(paths_in(tmp_path, cluster.fresh(f"t{time.time_ns()}")))
    clock_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: clock_s)
    ledger.check_health()
    cluster.stop("immediate")
    try:
        ledger.check_health()  # as it was within the stated time
        clock_s += health.MAX_AGE_S + 0.1
        for _ in range(3):
            with pytest.raises(LedgerUnavailableError):
                ledger.check_health()
    finally:
        cluster.start()
    clock_s += health.MAX_AGE_S + 0.1
    ledger.check_health()
    with monkeypatch.context() as patch:  # the look of every second finds out for all
        patch.setattr(ledger.mark, "value", lambda: int("not a number"))
        with pytest.raises(ValueError, match="invalid literal"):
            ledger.catch_up()
    with pytest.raises(LedgerUnavailableError):
        ledger.check_health()
    ledger.catch_up()
    ledger.check_health()
    ledger.close()


def test_a_database_that_does_not_answer_holds_up_one_of_those_who_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: clock_s)
    answers, asked = threading.Event(), threading.Event()

    def look() -> None:
        asked.set()
        assert answers.wait(30)

    live = health.Liveness(look)
    answers.set()
    live.check()
    answers.clear()
    asked.clear()
    clock_s += health.MAX_AGE_S + 0.1
    stuck = threading.Thread(target=live.check)
    stuck.start()
    assert asked.wait(30)
    live.check()  # not yet too long
    clock_s += health.MAX_PROBE_S
    with pytest.raises(LedgerUnavailableError, match="not answered"):
        live.check()
    answers.set()
    stuck.join()
    live.check()
