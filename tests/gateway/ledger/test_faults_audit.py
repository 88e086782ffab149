"""The audit itself: it takes an honest ledger, and rejects every copy that was tampered with."""

from __future__ import annotations

import copy
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.paths import GatewayPaths
from tests.support.hammer import Told, Unsound, audit, within_budget
from tests.support.hammering import Crowd, launching, people, status
from tests.support.stage import paths_in

Honest = tuple[GatewayPaths, list[Told]]
# Which row of the ledger: an own release in the middle of a window, one with noise, the last.
ROWS = {
    "easy": "SELECT id FROM entries WHERE kind = 'easy' ORDER BY id LIMIT 1 OFFSET 3",
    "hard": "SELECT id FROM entries WHERE kind = 'hard' ORDER BY id LIMIT 1",
    "end": "SELECT id FROM entries WHERE kind = 'none' ORDER BY id LIMIT 1",
    "first": "SELECT min(id) FROM entries",
    "last": "SELECT max(id) FROM entries",
}
# What is done to it, and what the audit says.
TAMPERED = {
    "a row deleted": ("easy", "DELETE FROM entries WHERE id = :row", "."),
    "the first row deleted": ("first", "DELETE FROM entries WHERE id = :row", "."),
    "the last row deleted": ("last", "DELETE FROM entries WHERE id = :row", "."),
    "a cost raised": (
        "easy",
        "UPDATE entries SET cost = cost * 2 WHERE id = :row",
        "cost is not that of its kind",
    ),
    "a cost no whole number of quanta": (
        "easy",
        "UPDATE entries SET cost = cost + 1e-17 WHERE id = :row",
        "whole quanta",
    ),
    "a plan raised with its cost": (
        "easy",
        "UPDATE entries SET cost = 2 * cost, eps_test = 2 * eps_test WHERE id = :row",
        "another plan",
    ),
    "a release changed": (
        "hard",
        "UPDATE entries SET lat = lat + 0.001 WHERE id = :row",
        "not what",
    ),
    "a repeated release changed": (
        "easy",
        "UPDATE entries SET lon = lon + 0.001 WHERE id = :row",
        "not what was guessed",
    ),
    "the spent sum lowered": (
        "last",
        "UPDATE users SET state = json_set(state, '$.session.run.spent', 0.0) WHERE :row > 0",
        "spent is not what the entries say",
    ),
    "an end moved into the window before": (
        "end",
        'UPDATE entries SET "window" = "window" - 1 WHERE id = :row',
        "of another window",
    ),
    "an end that came too early": (
        "easy",
        "UPDATE entries SET kind = 'none', lat = NULL, lon = NULL, cost = 0 WHERE id = :row",
        "there was budget left",
    ),
    "an entry before the one that was written first": (
        "last",
        "UPDATE entries SET at_s = at_s - 1e6 WHERE id = :row",
        "the entry before is not earlier",
    ),
    "an entry of another report": (
        "easy",
        "UPDATE entries SET device = 'stranger' WHERE id = :row",
        "nobody asked for it",
    ),
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Honest]:
    where = paths_in(tmp_path_factory.mktemp("honest"))
    rng = random.Random(8)  # noqa: S311  # load, not secrets
    ledger = Ledger.open(where)
    persons = people(ledger, 1, 2, rng)
    ledger.close()
    with launching() as launcher:
        port = launcher.listen()
        launcher.serve(where, port)
        assert status(port) == 200
        crowd = Crowd(persons, [port], rng)
        with crowd.sending(40):
            pass
        crowd.resend_all(port)
        crowd.close()
        yield where, crowd.told


def copied(where: GatewayPaths, folder: Path) -> GatewayPaths:
    """The ledger as a backup has it, with the key that belongs to it."""
    copy_of = paths_in(folder)
    shutil.copy(where.key_file, copy_of.key_file)
    with (
        sqlite3.connect(where.database.removeprefix("sqlite:///")) as source,
        sqlite3.connect(folder / "ledger.db") as target,
    ):
        source.backup(target)
    source.close()
    target.close()
    return copy_of


def test_an_honest_ledger_and_its_copy_pass(honest: Honest, tmp_path: Path) -> None:
    where, told = honest
    counts = audit(where, told)
    assert counts.acknowledged == counts.reports == 80
    assert counts.ended > 0
    assert 0.5 < counts.fullest <= 1.0
    assert audit(copied(where, tmp_path), told) == counts


@pytest.mark.parametrize("change", TAMPERED)
def test_a_ledger_that_was_tampered_with_is_rejected(
    honest: Honest, tmp_path: Path, change: str
) -> None:
    row, statement, words = TAMPERED[change]
    where, told = honest
    tampered = copied(where, tmp_path)
    database = sqlite3.connect(tmp_path / "ledger.db")
    with database:
        [number] = database.execute(ROWS[row]).fetchone()
        assert database.execute(statement, {"row": number}).rowcount == 1
    database.close()
    with pytest.raises(Unsound, match=words):
        audit(tampered, told)


def test_a_second_release_for_one_report_is_rejected(honest: Honest) -> None:
    where, told = honest
    forged = [copy.copy(report) for report in told]
    index = next(i for i, report in enumerate(forged) if report.answers[0]["kind"] == "hard")
    answer = forged[index].answers[0]
    forged[index].answers = [answer, {**answer, "lat": answer["lat"] + 0.001}]
    with pytest.raises(Unsound, match="the answer is not what the ledger has"):
        audit(where, forged)


def test_answers_that_together_cost_too_much_are_rejected(honest: Honest) -> None:
    """Even if the ledger has forgotten them, as a restored one has."""
    where, told = honest
    assert within_budget(where, told) == audit(where, told).fullest
    report = next(report for report in told if report.answers[0]["kind"] == "hard")
    dear = copy.copy(report)
    dear.answers = [{**report.answers[0], "lat": float(i)} for i in range(40)]
    with pytest.raises(Unsound, match="the answers of user 0 cost too much"):
        within_budget(where, [*told, dear])
