"""`hereish sanitize --ledger`: on one machine, with the budgets of a gateway's users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hereish.gateway.ledger.jobs import LedgerJob
from tests.support.terminal import Done, Terminal

DAY = "2026-05-05"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"{user},{DAY}T{hour:02}:00:00Z,60.17,24.94" for user in "ab" for hour in range(24)]
    (tmp_path / "day.csv").write_text("\n".join(["user,time,lat,lon", *rows]) + "\n")
    return tmp_path


def sanitize(hereish: Terminal, out: str, *words: str) -> Done:
    return hereish("sanitize", "day.csv", "-o", out, "--ledger", "ledger.db", "--json", *words)


def test_two_jobs_share_the_budget_of_a_user(hereish: Terminal, folder: Path) -> None:
    hereish("user", "add", "a")
    first = json.loads(sanitize(hereish, "one.csv", "--job", "one").out)
    assert first["job"]["windows"] == 2
    assert sum(first["job"]["refused"].values()) == 1, "b is not a user"
    assert (first["hard"] + first["easy"] + first["untested"], first["refused"]) == (24, 24)
    second = json.loads(sanitize(hereish, "two.csv", "--job", "two", "--add-users").out)
    assert second["job"] == {"name": "two", "windows": 2, "reduced": 1, "refused": {}}
    assert spent("one.csv", "a") + spent("two.csv", "a") <= 2.302585092994046 / 100
    listed = json.loads(hereish("ledger", "jobs", "--json").out)
    assert [job["name"] for job in listed] == ["two", "one"]
    assert all(job["taken"] < job["reserved"] for job in listed)
    text = hereish("ledger", "jobs").out
    assert "two  begun" in text
    assert "2 windows of 2 users; paid" in text


def test_a_shared_budget_has_no_second_promise(hereish: Terminal, folder: Path) -> None:
    """Others release from the same budget: what all of it loses but for delta is not known."""
    alone = ("--mechanism", "independent", "--reports", "30")
    hereish("user", "add", "a", *alone)
    shared = sanitize(hereish, "one.csv", "--job", "one", *alone)
    assert json.loads(shared.out)["second"] is None, shared.err
    assert "at_delta" not in Path("one.csv-metadata.json").read_text()
    own = hereish("sanitize", "day.csv", "-o", "own.csv", *alone)
    assert "A second promise, besides the first. For each user, the reports of each day" in own.out
    assert "guarantee_at_delta" in Path("own.csv-metadata.json").read_text()


def test_very_many_reports_are_sanitised(hereish: Terminal, folder: Path) -> None:
    many = ("--mechanism", "independent", "--reports", "50000", "--json")
    done = hereish("sanitize", "day.csv", "-o", "many.csv", *many)
    assert 0.0 < json.loads(done.out)["second"]["level"] < 0.1, done.err


def spent(name: str, user: str) -> float:
    lines = Path(name).read_text().splitlines()[1:]
    return sum(float(line.split(",")[-1]) for line in lines if line.startswith(f"{user},"))


def test_a_job_that_dies_has_published_nothing_and_can_be_run_again(
    hereish: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hereish("user", "add", "a")

    def dies(self: LedgerJob, *_: Any, **__: Any) -> None:
        raise OSError(5, "gone")

    with monkeypatch.context() as patched:
        patched.setattr(LedgerJob, "settle", dies)
        assert sanitize(hereish, "one.csv", "--job", "one").code != 0
    assert not [path.name for path in folder.iterdir() if "one" in path.name]
    listed = hereish("ledger", "jobs").out
    assert "not paid for yet" in listed
    assert sanitize(hereish, "other.csv", "--job", "other").code == 1, "nothing is left for another"
    again = sanitize(hereish, "one.csv", "--job", "one")
    assert again.code == 0, again.err
    third = sanitize(hereish, "again.csv", "--job", "one")
    assert third.code == 1
    assert "has released its output" in third.err


def test_what_a_dead_job_has_reserved_is_returned_by_cancelling_it(
    hereish: Terminal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hereish("user", "add", "a")
    with monkeypatch.context() as patched:
        patched.setattr(LedgerJob, "settle", lambda *_, **__: 1 / 0)
        assert sanitize(hereish, "one.csv", "--job", "one").code != 0
    assert hereish("ledger", "cancel", "one", "--yes").code == 0
    other = json.loads(sanitize(hereish, "other.csv", "--job", "other").out)
    assert other["job"]["reduced"] == 0
    paid = hereish("ledger", "cancel", "other", "--yes")
    assert "stays spent" in paid.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--job", "one"], "belongs to --ledger"),
        (["--add-users"], "belongs to --ledger"),
        (["--ledger", "ledger.db"], "needs a name for the job"),
        (["--ledger", "ledger.db", "--job", "one", "--seed", "1"], "NOT PRIVATE"),
        (["--ledger", "ledger.db", "--job", "a\nb"], "name of a job"),
        (
            ["--ledger", "ledger.db", "--job", "one", "--window", "trace", "--accuracy", "3km"],
            "none per trace",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    hereish: Terminal, folder: Path, words: list[str], said: str
) -> None:
    done = hereish("sanitize", "day.csv", "-o", "out.csv", *words)
    assert done.code == 2
    assert said in done.err


def test_the_summary_for_people_says_who_was_left_out(hereish: Terminal, folder: Path) -> None:
    hereish("user", "add", "a")
    done = hereish("sanitize", "day.csv", "-o", "out.csv", "--ledger", "ledger.db", "--job", "one")
    assert "Job one is paid for in the ledger: 2 windows." in done.out
    assert "1 got nothing: not a user of the ledger" in done.out
    assert "Most points were refused" not in done.out
