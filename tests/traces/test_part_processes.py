"""Processes that work on parts: all of them once, in order, and none that goes on or hangs."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection

import pytest

from hereish.traces.part_processes import LostPartError, results_of_parts
from tests.support.processes import children, open_files

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are forked on Linux alone"
)
LARGE = 1 << 22  # bytes; more than any pipe holds


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    started, files = children(), open_files()
    yield
    assert children() <= started, "a process is left"
    assert open_files() <= files, "a file is left open"


@pytest.mark.parametrize("jobs", [1, 2, 3, 7])
@pytest.mark.parametrize("sizes", [[5], [1] * 40, [9, 1, 1, 30, 1, 1, 1, 200, 1], [1] * 300])
def test_parts_are_done_once_and_come_in_order(sizes: list[int], jobs: int) -> None:
    here = os.getpid()
    found = list(results_of_parts(lambda number: (number, os.getpid()), sizes, jobs))
    assert [number for number, _ in found] == list(range(len(sizes)))
    by = {pid for _, pid in found}
    assert here not in by
    assert len(by) <= jobs


def test_large_results_arrive_whole() -> None:
    found = results_of_parts(lambda number: bytes([number]) * LARGE, [1] * 9, 3)
    assert all(result == bytes([i]) * LARGE for i, result in enumerate(found))


def test_no_more_results_wait_than_about_twice_the_processes() -> None:
    """While one part takes long, the others do not pile up in memory."""
    begun, told = os.pipe()

    def work(number: int) -> int:
        os.write(told, b".")
        if number == 0:
            time.sleep(1.0)
        return number

    results = results_of_parts(work, [1] * 200, 2)
    with closing(results):
        assert next(results) == 0
        assert len(os.read(begun, 1000)) <= 2 * 2 + 2 + 1
    os.close(begun)
    os.close(told)


def test_a_process_that_is_killed_is_noticed() -> None:
    def work(number: int) -> int:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    for sizes in ([1] * 40, [1] * 4):  # while others are left, and as the last
        results = results_of_parts(work, sizes, 2)
        with pytest.raises(LostPartError):
            list(results)


def test_nobody_notices_how_work_fails(capfd: pytest.CaptureFixture[str]) -> None:
    def work(number: int) -> int:
        raise RuntimeError("60.16992, 24.93844")

    with pytest.raises(LostPartError) as found:
        list(results_of_parts(work, [1] * 9, 2))
    out, err = capfd.readouterr()
    assert "60.1" not in f"{out}{err}{found.value!r}{found.value.__context__!r}"


def test_without_room_there_are_fewer_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, left = os.fork, [1]

    def refused() -> int:
        if not left:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        left.pop()
        return fork()

    monkeypatch.setattr(os, "fork", refused)
    assert list(results_of_parts(lambda number: number, [1] * 9, 3)) == list(range(9))
    with pytest.raises(LostPartError):
        list(results_of_parts(lambda number: number, [1] * 9, 3))


def test_without_room_for_pipes_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe", refused)
    with pytest.raises(LostPartError):
        list(results_of_parts(lambda number: number, [1] * 9, 3))


class LateError(TimeoutError):
    """What many programs raise when an alarm goes off."""


@pytest.mark.parametrize("when", ["at a fork", "later"])
def test_an_alarm_of_the_caller_is_no_failure_of_a_process(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = os.fork

    def too_late(*_: object) -> None:
        raise LateError

    def alarming() -> int:
        pid = fork()
        if pid and when == "at a fork":
            os.kill(os.getpid(), signal.SIGALRM)
        return pid

    def half(self: Connection, result: object) -> None:
        os.write(self.fileno(), struct.pack("!i", 1000) + b"half of it")
        time.sleep(60)

    monkeypatch.setattr(os, "fork", alarming)
    monkeypatch.setattr(Connection, "send", half)
    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(LateError):
            list(results_of_parts(lambda number: number, [1] * 9, 2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


PROGRAM = """
import os, signal, sys
from hereish.traces.part_processes import results_of_parts

parent = os.getpid()

def work(number):
    if {dies} and number == 2:
        os.kill(parent, signal.SIGKILL)
    return bytes({large})

results = results_of_parts(work, [1] * 9, 3)
next(results)
if {dies}:
    list(results)
results.close()  # while others are in the middle of their messages
print("closed")
"""


@pytest.mark.parametrize("dies", [False, True])
def test_a_program_ends_whatever_is_on_its_way(dies: bool) -> None:
    program = PROGRAM.format(dies=dies, large=LARGE)
    # Its ends of these pipes are open until the last of the processes has ended.
    ran = subprocess.run(  # noqa: S603  # ours
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert ran.stderr == ""
    assert (ran.returncode, ran.stdout) == ((-signal.SIGKILL, "") if dies else (0, "closed\n"))
