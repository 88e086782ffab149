"""What this process and all that it has started take: processor seconds and memory, by /proc."""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Those that the program was started with: most parts use one of them.
ALL_CORES = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())


def use_cores(cores: frozenset[int]) -> None:
    """From now on this process, and what it starts, has these cores."""
    if cores:  # where the system lets us choose
        os.sched_setaffinity(0, cores)


@contextmanager
def all_cores() -> Iterator[None]:
    """Within it this process, and what it starts, has all cores there are."""
    before = frozenset(os.sched_getaffinity(0)) if ALL_CORES else ALL_CORES
    use_cores(ALL_CORES)
    try:
        yield
    finally:
        use_cores(before)


def processor_s_in_turns(
    rounds: int, *tasks: Callable[[], None], rounds_before: int = 1
) -> list[float]:
    """The median of the processor seconds of each, with all child processes.

    `rounds_before` are to warm up, and do not count.
    """
    taken: list[list[float]] = [[] for _ in tasks]
    for _ in range(rounds_before + rounds):
        for task, seconds in zip(tasks, taken, strict=True):
            before = processor_s()
            task()
            seconds.append(processor_s() - before)
    return [statistics.median(seconds[rounds_before:]) for seconds in taken]


def processor_s() -> float:
    """Of this process, of all that it has started, and of those that they have waited for."""
    total = 0
    for process in _processes():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


@contextmanager
def largest_worker_mib() -> Iterator[list[float]]:
    """Within it workers of Spark are watched: in the end, the most memory that one has had.

    Of those that live: a worker that has ended in between was seen before, half a second at most.
    """
    most, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            most[0] = max(most[0], _largest_worker_mib())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()
        most[0] = max(most[0], _largest_worker_mib())


def _largest_worker_mib() -> float:
    most = 0.0
    for process in _processes()[1:]:
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        if b"pyspark" in command and b"java" not in command.split(b"\0")[0]:
            # What is ending has no memory any more.
            peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
            most = max([most, *(int(peak) / 1024 for peak in peaks)])
    return most


def _processes() -> list[int]:
    """This process and all that it has started, and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [os.getpid()]
    for process in found:
        found += children.get(process, [])
    return found
