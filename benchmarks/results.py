"""What the parts of the benchmarks share: a result, its row in the table, and how time is taken."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

_MARKER = "<!-- written by make bench-write -->"  # before and after the table
_HEAD = ("| what | measured | wanted |", "|---|---|---|")


class Result(NamedTuple):
    """A ratio that was measured, and the goal that it met or missed."""

    what: str
    measured: str
    wanted: str
    met: bool

    def row(self) -> str:
        missed = "" if self.met else " (missed)"
        return f"| {self.what} | {self.measured}{missed} | {self.wanted} |"


def shortest_times(rounds: int, *jobs: Callable[[], object]) -> list[float]:
    """The shortest time of each job over the rounds, in seconds; the jobs take turns.

    Each round has another order: what the system does every few seconds, such as handing free
    memory back to a host, would else meet the same job each time.
    """
    times = [math.inf] * len(jobs)
    order = random.Random(1)  # noqa: S311  # of measurements
    for _ in range(rounds):
        for i in order.sample(range(len(jobs)), len(jobs)):
            job = jobs[i]
            start = time.perf_counter()
            job()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def format_table(results: Sequence[Result]) -> str:
    """The results as a table of Markdown."""
    return "\n".join([*_HEAD, *(result.row() for result in results)])


def update_page(page: str, results: Sequence[Result], *, keep: bool) -> str:
    """The page with these results in its table.

    With `keep`, rows of the table that were not measured again stay, and new ones are appended.
    """
    before, _, rest = page.partition(_MARKER)
    table, _, after = rest.partition(_MARKER)
    rows = {row.split("|")[1].strip(): row for row in table.split("\n") if keep and row[:1] == "|"}
    rows = {what: row for what, row in rows.items() if row not in _HEAD}
    rows |= {result.what: result.row() for result in results}
    lines = "\n".join([*_HEAD, *rows.values()])
    return f"{before}{_MARKER}\n\n{lines}\n\n{_MARKER}{after}"
