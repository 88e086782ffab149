"""What a second core brings: to sanitising on Spark, and to the identity in its place."""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.processes import ALL_CORES, use_cores
from benchmarks.results import Result
from benchmarks.spark import (
    ROUNDS,
    identity_and_sanitize,
    not_measured,
    spark_session,
    write_points,
)
from hereish.traces.key_file import write_key_file

_POINTS = 4_000_000
_WANTED = "at least 0.9"
_WHAT = (
    f"Spark, {_POINTS:,} points, time on one core / on two: hereish.spark.sanitize / the identity "
    "over the same partitions and sort"
)


def engine_scaling() -> list[Result]:
    """Time on one core and on two, each with a Spark of its own; all of them take turns."""
    if shutil.which("java") is None:
        return not_measured(_WHAT, _WANTED)
    one, two = (frozenset(sorted(ALL_CORES)[:count]) for count in (1, 2))
    if len(two) < 2:
        return not_measured(_WHAT, _WANTED, "two cores are needed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_key_file(folder / "key")
        write_points(folder / "points", _POINTS)
        with _spark_on(one, folder) as slow, _spark_on(two, folder) as fast:
            rounds = [[*_times(slow), *_times(fast)] for _ in range(1 + ROUNDS)]
    # The first round is to warm up.
    on_one, ours_on_one, on_two, ours_on_two = map(statistics.median, zip(*rounds[1:], strict=True))
    identity, sanitize = on_one / on_two, ours_on_one / ours_on_two
    ratio = sanitize / identity
    gained = f"{sanitize:.2f} times as fast on two cores, the identity {identity:.2f} times"
    return [Result(_WHAT, f"{ratio:.2f} ({gained})", _WANTED, ratio >= 0.9)]


def _times(spark: Connection) -> list[float]:
    """The seconds of the identity, and of sanitising."""
    spark.send("go on")
    seconds: list[float] = spark.recv()
    return seconds


@contextmanager
def _spark_on(cores: frozenset[int], folder: Path) -> Iterator[Connection]:
    """A process with a Spark and no other cores than these; Java and workers inherit them."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(there, cores, folder))
    process.start()
    there.close()  # so that its end is noticed here
    try:
        yield here
    finally:
        here.close()
        process.join()


def _serve(asked: Connection, cores: frozenset[int], folder: Path) -> None:
    """Run both, each time that it is asked to, until nobody is there to ask."""
    use_cores(cores)
    with spark_session(folder, len(cores)) as session:
        jobs = identity_and_sanitize(session, folder)
        while True:
            try:
                asked.recv()
            except EOFError:
                return
            seconds = []
            for job in jobs:
                start = time.perf_counter()
                job()
                seconds.append(time.perf_counter() - start)
            asked.send(seconds)
