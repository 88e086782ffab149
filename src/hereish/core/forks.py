"""Forks of this process: they do one thing, and end without a word."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_NUMBER_BYTES = 4
_NO_ROOM = frozenset((errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EPERM))


def can_fork() -> bool:
    """Whether a fork is safe here: another thread could be in the middle of something."""
    alone = threading.active_count() == 1 and threading.current_thread() is threading.main_thread()
    return sys.platform == "linux" and alone


@contextmanager
def as_far_as_there_is_room() -> Iterator[None]:
    """Goes on after it where the system gives no more processes, pipes or memory.

    A TimeoutError is an OSError, too, but that of a handler of the caller, who wants to know.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise


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
            # Where somebody else has waited for it, its number may be that of another process now.
            with suppress(ChildProcessError):
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Within it interrupts wait, however impatient one is, and so do all handlers of signals.

    To block the signals would not do: the system then gives them to a thread of a library, such as
    one of NumPy's, and Python interrupts its main thread all the same.
    """
    came: list[tuple[int, FrameType | None]] = []
    over = False
    handlers = _handlers()

    def note(number: int, frame: FrameType | None) -> None:
        if over:  # and an interrupt came before its own handler was back
            handlers[number](number, frame)
        else:
            came.append((number, frame))

    try:
        for number in handlers:
            signal.signal(number, note)
        yield
    finally:
        over = True
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in came:  # not raised again: an event loop has been told of it
            handlers[number](number, frame)


def _handlers() -> dict[int, Callable[[int, FrameType | None], object]]:
    """Those of the caller, which only the main thread runs, and only it can change."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    known = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {number: handler for number, handler in known.items() if callable(handler)}


def _act(act: Callable[[], object]) -> NoReturn:
    """All that a fork does. Whatever goes wrong, it says nothing, and its parent notices."""
    try:
        # An interrupt is for the parent, which ends its forks, and so is whatever else it handles:
        # twice is once too often. Others end them as they do any.
        for number in (signal.SIGINT, *_handlers()):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        gc.disable()  # objects of the caller are the parent's to finalise
        act()
    finally:
        os._exit(0)


def offer_numbers(offered: int, numbers: Iterable[int]) -> None:
    """Put numbers into a pipe, from which each is taken once, by whoever comes first."""
    left = b"".join(number.to_bytes(_NUMBER_BYTES, "little") for number in numbers)
    while left:  # where the pipe is narrow, a signal can come in the middle of it
        left = left[os.write(offered, left) :]


def claimed_numbers(unclaimed: int) -> Iterator[int]:
    """Numbers that no other process has taken, until the pipe is closed and empty."""
    while taken := os.read(unclaimed, _NUMBER_BYTES):
        yield int.from_bytes(taken, "little")
