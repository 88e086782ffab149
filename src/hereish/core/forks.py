"""Forks of this process: they do one thing, and end without a word."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NUMBER_BYTES = 4


def can_fork() -> bool:
    """Whether a fork is safe here: another thread could be in the middle of something."""
    alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    return sys.platform == "linux" and alone


def start_fork(forks: list[int], act: Callable[[], object]) -> None:
    """Fork this process, and add the copy to the others; it acts, and never comes back from here.

    Raises OSError if there is no room for another process.
    """
    with uninterrupted():
        with warnings.catch_warnings():
            # That there are threads: those of libraries, which are idle and know of forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            _act(act)
        forks.append(pid)


def end_forks(forks: Iterable[int]) -> None:
    """Let none of them go on, nor any be left behind."""
    with uninterrupted():
        for pid in forks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):  # somebody else has waited for it
                os.waitpid(pid, 0)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Within it interrupts wait, however impatient one is."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)  # what has waited is raised here


def _act(act: Callable[[], object]) -> NoReturn:
    """All that a fork does. Whatever goes wrong, it says nothing, and its parent notices."""
    try:
        # An interrupt is for the parent, which ends its forks; others end them as they do any.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        gc.disable()  # objects of the caller are the parent's to finalise
        act()
    finally:
        os._exit(0)


def offer_numbers(offered: int, numbers: Iterable[int]) -> None:
    """Put numbers into a pipe, from which each is taken once, by whoever comes first."""
    os.write(offered, b"".join(number.to_bytes(_NUMBER_BYTES, "little") for number in numbers))


def claimed_numbers(unclaimed: int) -> Iterator[int]:
    """Numbers that no other process has taken, until the pipe is closed and empty."""
    while taken := os.read(unclaimed, _NUMBER_BYTES):
        yield int.from_bytes(taken, "little")
