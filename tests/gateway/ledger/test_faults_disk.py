"""The disk of the ledger is full: nothing is released, nothing is half written, and it goes on."""

from __future__ import annotations

import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.paths import GatewayPaths
from tests.support.hammer import audit
from tests.support.hammering import Crowd, launching, people, publish, status
from tests.support.postgres import postgres
from tests.support.stage import paths_in

ROUNDS = 3


def starved(
    where: GatewayPaths,
    full: Callable[[int, bool], None],
    record: Callable[[str, object], None],
    name: str,
) -> None:
    """Under load, `full(process, True)` takes the space away and `full(process, False)` gives it
    back.
    """
    rng = random.Random(9)  # noqa: S311  # load, not secrets
    ledger = Ledger.open(where)
    persons = people(ledger, 2, 2, rng)
    ledger.close()
    with launching() as launcher:
        port = launcher.listen()
        pid = launcher.serve(where, port)
        assert status(port) == 200
        crowd = Crowd(persons, [port], rng)
        for _ in range(ROUNDS):
            with crowd.sending():
                crowd.until_answered(200, 50)
                full(pid, True)
                crowd.until_answered(503, 20)
            audit(where, crowd.told)  # while it is full, too
            full(pid, False)
            crowd.resend_all(port)
            audit(where, crowd.told)
        assert status(port) == 200
        crowd.close()
        assert launcher.end(pid) == 0
    counts = audit(where, crowd.told)
    publish(name, crowd, counts, record, times_full=ROUNDS)
    assert set(crowd.statuses) == {200, 503}
    assert counts.acknowledged == counts.reports


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Four megabytes of their own, where one may mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        subprocess.run(mounting, check=True, capture_output=True)  # noqa: S603  # our own words
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no small disk was used: mounting one takes root; the other test limits files")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S603, S607  # our own words


def test_a_full_disk_releases_nothing_and_loses_nothing(
    tmp_path: Path, small_disk: Path, record_property: Callable[[str, object], None]
) -> None:
    ballast = small_disk / "ballast"

    def full(_: int, taken: bool) -> None:
        if not taken:
            ballast.unlink()
            return
        handle = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while True:
                os.write(handle, bytes(4096))
        except OSError:
            pass  # as it is meant to
        finally:
            os.close(handle)

    usual = paths_in(tmp_path)
    where = GatewayPaths(
        f"sqlite:///{small_disk / 'ledger.db'}", usual.key_file, small_disk / "mark"
    )
    starved(where, full, record_property, "disk full")


def test_files_that_may_not_grow_release_nothing_and_lose_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    def full(pid: int, taken: bool) -> None:
        most = 256 if taken else resource.RLIM_INFINITY
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    starved(paths_in(tmp_path), full, record_property, "files limited")


def test_a_mark_that_cannot_be_written_lets_nothing_out(tmp_path: Path) -> None:
    """A release whose number the mark does not have could be paid for again after a restore."""
    rng = random.Random(10)  # noqa: S311  # places, not secrets
    with postgres() as cluster, launching() as launcher:
        where = paths_in(tmp_path, cluster.fresh("marked"))
        ledger = Ledger.open(where)
        [person] = people(ledger, 1, 1, rng)
        ledger.close()
        port = launcher.listen()
        pid = launcher.serve(where, port)
        assert status(port) == 200
        crowd = Crowd([person], [port], rng)
        report = person.next("device 0")
        # The database is in other processes, so of its files this hits the mark alone.
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
        answers = [crowd.send(report, port) for _ in range(3)]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert crowd.send(report, port) == 200
        crowd.close()
        audit(where, [report])
    assert answers == [503, 503, 503]
    assert int(where.mark_file.read_text("ascii").split()[-1]) == 1
