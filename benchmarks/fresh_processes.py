"""A batch against plain NumPy in ten processes: with memory that is new, and that was kept.

What a batch returns is large, and the system clears each page of new memory before it is used. How
long that takes is decided by the system, from process to process; `malloc` can be told to keep
memory instead, and then only the work is compared.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable

import hereish
from benchmarks.mechanism import mechanisms, plain_numpy, traces
from benchmarks.results import Result

PROCESSES, ROUNDS, TRACES = 10, 4, 100_000
# Settings of glibc: nothing is handed back, so that after the first round no page is new.
_KEPT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 26),
}


def fresh_processes() -> list[Result]:
    """The worst of ten processes, by processor seconds."""
    found: dict[str, dict[str, list[list[float]]]] = {"kept": {}, "new": {}}
    for _ in range(PROCESSES):
        for memory, measured in found.items():
            settings = os.environ | (_KEPT if memory == "kept" else {})
            command = [sys.executable, "-m", "benchmarks.fresh_processes"]
            ran = subprocess.run(command, env=settings, check=True, capture_output=True)  # noqa: S603  # ours
            for name, numbers in json.loads(ran.stdout).items():
                measured.setdefault(name, []).append(numbers)
    rows = []
    for name in mechanisms():
        for memory, goal in (("kept", 1.0), ("new", None)):
            ratios = [plain / ours for plain, ours, _ in found[memory][name]]
            clearing = [cleared / ours for _, ours, cleared in found[memory][name]]
            rows.append(
                Result(
                    f"points per second, {name}, {TRACES:,} traces of 30, {memory} memory, worst "
                    f"of {PROCESSES} processes: hereish.sanitize (secure) / plain NumPy "
                    "independent noise (PCG64), processor seconds",
                    f"{min(ratios):.2f} ({' '.join(f'{ratio:.2f}' for ratio in ratios)}; of ours, "
                    f"{min(clearing):.0%} to {max(clearing):.0%} in the system)",
                    "for comparison" if goal is None else f"at least {goal}",
                    goal is None or min(ratios) >= goal,
                )
            )
    return rows


def _seconds(job: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds, and how many of them in the system."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    job()
    after = resource.getrusage(resource.RUSAGE_SELF)
    in_system = after.ru_stime - before.ru_stime
    return after.ru_utime - before.ru_utime + in_system, in_system


def _measure() -> dict[str, list[float]]:
    """Of each mechanism: seconds of plain NumPy, of ours, and of ours in the system."""
    data = traces(TRACES)
    measured = {}
    for name, m in mechanisms().items():
        plain, ours = [], []
        for _ in range(ROUNDS):
            plain.append(_seconds(lambda: plain_numpy(data.points)))
            ours.append(_seconds(lambda m=m: hereish.sanitize(m, *data)))  # type: ignore[misc]  # its default
        measured[name] = [min(plain)[0], *min(ours)]
    return measured


if __name__ == "__main__":
    print(json.dumps(_measure()))
