"""Forks as such: signals that come at the wrong moment, and processes of somebody else."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hereish.core.forks import (
    as_far_as_there_is_room,
    claimed_numbers,
    end_forks,
    offer_numbers,
    start_fork,
    uninterrupted,
)
from tests.support.processes import children, open_files

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are forked on Linux alone"
)


class LateError(TimeoutError):
    """What many programs raise when an alarm goes off."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    started, files = children(), open_files()
    yield
    assert children() <= started, "a process is left"
    assert open_files() <= files, "a file is left open"


@contextmanager
def handled(number: int, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def another_thread() -> Iterator[None]:
    """The system gives it the signals that the main thread blocks, as it does NumPy's."""
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def raise_late(*_: object) -> None:
    raise LateError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_handlers_wait_even_if_another_thread_takes_the_signal(number: int) -> None:
    done = False
    with another_thread(), handled(number, raise_late):
        with pytest.raises(LateError), uninterrupted():
            for _ in range(3):
                os.kill(os.getpid(), number)
                time.sleep(0.01)
            done = True
        assert signal.getsignal(number) is raise_late
    assert done


def test_an_event_loop_is_told_of_a_signal_once() -> None:
    seen: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, seen.append, "once")
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.1)

    asyncio.run(main())
    assert seen == ["once"]


def test_an_alarm_at_the_moment_of_a_fork_does_not_lose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, forks = os.fork, list[int]()

    def alarming() -> int:
        pid = fork()
        if pid:
            os.kill(os.getpid(), signal.SIGALRM)
        return pid

    monkeypatch.setattr(os, "fork", alarming)
    with handled(signal.SIGALRM, raise_late), pytest.raises(LateError), as_far_as_there_is_room():
        start_fork(forks, lambda: time.sleep(60))
    assert len(forks) == 1
    end_forks(forks)


def test_all_forks_are_ended_whatever_comes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    forks, kill = list[int](), os.kill
    for _ in range(3):
        start_fork(forks, lambda: time.sleep(60))

    def alarming(pid: int, number: int) -> None:
        kill(pid, number)
        kill(os.getpid(), signal.SIGALRM)

    monkeypatch.setattr(os, "kill", alarming)
    with handled(signal.SIGALRM, raise_late), pytest.raises(LateError):
        end_forks(forks)


def test_what_the_caller_does_at_a_signal_is_not_done_by_forks() -> None:
    told, tell = os.pipe()
    forks = list[int]()

    def act() -> None:
        for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            os.kill(os.getpid(), number)
        os.write(tell, b"went on")

    def handler(*_: object) -> None:
        os.write(tell, b"was done twice, ")

    with handled(signal.SIGUSR1, handler), handled(signal.SIGHUP, handler):
        start_fork(forks, act)
    assert os.read(told, 100) == b"went on"
    end_forks(forks)
    os.close(told)
    os.close(tell)


def test_a_process_that_somebody_waited_for_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be that of another one by now."""
    forks, killed = list[int](), list[int]()
    start_fork(forks, lambda: None)
    os.waitpid(forks[0], 0)
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    end_forks(forks)
    assert not killed


def test_numbers_arrive_through_a_narrow_pipe_whatever_comes_meanwhile() -> None:
    unclaimed, offered = os.pipe()
    fcntl.fcntl(offered, fcntl.F_SETPIPE_SZ, 4096)
    claimed, told = os.pipe()
    forks = list[int]()

    def act() -> None:
        os.close(offered)
        time.sleep(0.3)
        os.write(told, len(list(claimed_numbers(unclaimed))).to_bytes(4, "little"))

    start_fork(forks, act)
    with handled(signal.SIGALRM, lambda *_: None):
        signal.setitimer(signal.ITIMER_REAL, 0.1)  # while it waits for the other to read
        offer_numbers(offered, range(5000))
    os.close(offered)
    assert int.from_bytes(os.read(claimed, 4), "little") == 5000
    end_forks(forks)
    for end in (unclaimed, claimed, told):
        os.close(end)


def test_only_a_lack_of_room_is_passed_over() -> None:
    with as_far_as_there_is_room():
        raise OSError(errno.EMFILE, "Too many open files")
    for error in (LateError(), OSError(errno.EBADF, "Bad file descriptor"), KeyboardInterrupt()):
        with pytest.raises(type(error)), as_far_as_there_is_room():
            raise error
