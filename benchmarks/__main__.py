"""What hereish costs, as ratios; all but those of the gateway in one process on one core.

Run by `make bench`. `--write` puts the table into docs/benchmarks.md. Times of one run are only
compared with each other: the best of several rounds, in which the things compared take turns.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import hereish
from benchmarks.files import files, starting
from benchmarks.gateway import gateway
from benchmarks.research import research
from benchmarks.rows import Row, best
from hereish import synthetic
from hereish.core.types import Floats, Ints

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
POINTS_EACH = 30
REPORT = Path(__file__).parent.parent / "docs" / "benchmarks.md"
MARK = "<!-- written by make bench-write -->"


class Traces(NamedTuple):
    points: Floats
    at_s: Floats
    offsets: Ints


def traces(count: int) -> Traces:
    day = synthetic.day(users=count, points_each=POINTS_EACH, seed=1)
    return Traces(day.points, day.at_s, day.offsets)


def plain_numpy(points: Floats, wrap: bool = True, block: int = 8192) -> Floats:
    """Independent great-circle noise as a careful NumPy user writes it: PCG64, in cached blocks.

    `wrap` brings longitudes back to -180..180; without it the result is not always a place.
    """
    rng = np.random.Generator(np.random.PCG64(1))
    k = PRIVACY.eps_per_m / 30 * 6371008.8
    out = np.empty_like(points)
    for start in range(0, len(points), block):
        here = points[start : start + block]
        u = rng.random((3, len(here)))
        angle = np.log(u[0] * u[1]) / -k
        bearing = (2 * np.pi) * u[2]
        lat = np.radians(here[:, 0])
        sin_lat, cos_lat = np.sin(lat), np.cos(lat)
        sin_angle, cos_angle = np.sin(angle), np.cos(angle)
        sin_moved = sin_lat * cos_angle + cos_lat * sin_angle * np.cos(bearing)
        east = np.arctan2(np.sin(bearing) * sin_angle * cos_lat, cos_angle - sin_lat * sin_moved)
        lon = here[:, 1] + np.degrees(east)
        out[start : start + block, 0] = np.degrees(np.arcsin(sin_moved))
        out[start : start + block, 1] = (lon + 540.0) % 360.0 - 180.0 if wrap else lon
    return out


def mechanisms() -> dict[str, hereish.PredictiveMechanism]:
    return {
        "fixed utility, 3 km": hereish.fixed_utility(PRIVACY, accuracy_m=3000),
        "fixed rate, 30 reports": hereish.fixed_rate(PRIVACY, reports=30),
    }


def throughput() -> list[Row]:
    data = traces(200_000)
    rows = []
    for name, m in mechanisms().items():
        plain, careless, ours = best(
            9,
            lambda: plain_numpy(data.points),
            lambda: plain_numpy(data.points, wrap=False),
            partial(hereish.sanitize, m, *data),
        )
        what = f"points a second, {name}, 200,000 traces of 30: hereish.sanitize (secure) / "
        ratio = plain / ours
        rows += [
            Row(
                f"{what}plain NumPy independent noise (PCG64)",
                f"{ratio:.2f}",
                "at least 0.8",
                ratio >= 0.8,
            ),
            Row(
                f"{what}the same that leaves longitudes beyond ±180 as they come",
                f"{careless / ours:.2f}",
                "for comparison",
                True,
            ),
        ]
    return rows


def keyed() -> list[Row]:
    """Draws that are a function of the report, against draws from the operating system's key."""
    data, m = traces(200_000), mechanisms()["fixed utility, 3 km"]
    users = [f"user {i}" for i in range(200_000)]
    draws = hereish.KeyedDraws(b"k" * 32)
    secure, ours = best(
        7,
        partial(hereish.sanitize, m, *data),
        partial(hereish.sanitize, m, *data, draws=draws, users=users),
    )
    ratio = secure / ours
    what = "points per second, fixed utility, 3 km, 200,000 traces of 30: KeyedDraws / SecureDraws"
    return [Row(what, f"{ratio:.2f}", "at least 0.6", ratio >= 0.6)]


def memory() -> list[Row]:
    data = traces(200_000)
    rows = []
    for name, m in mechanisms().items():
        tracemalloc.start()
        held = sum(array.nbytes for array in data)
        out = hereish.sanitize(m, *data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        held += sum(array.nbytes for array in vars(out).values() if isinstance(array, np.ndarray))
        ratio = (peak + sum(array.nbytes for array in data)) / held
        rows.append(
            Row(
                f"peak memory, {name}, 200,000 traces of 30 / inputs plus outputs",
                f"{ratio:.2f}",
                "below 3",
                ratio < 3,
            )
        )
    return rows


def live() -> list[Row]:
    """A day of a person, session after session, against the smallest thing NumPy does."""
    day = synthetic.day(users=20, points_each=POINTS_EACH, seed=2)
    queries = [
        [
            ((float(lat), float(lon)), datetime.fromtimestamp(float(at), tz=UTC))
            for (lat, lon), at in zip(day.points[a:b], day.at_s[a:b], strict=True)
        ]
        for a, b in zip(day.offsets[:-1], day.offsets[1:], strict=True)
    ]
    calls = 20_000

    def smallest() -> None:
        for _ in range(calls):
            np.hypot(3.0, 4.0)

    rows = []
    for name, m in mechanisms().items():
        made = 0

        def reports(m: hereish.PredictiveMechanism = m) -> None:
            nonlocal made
            made = 0
            for query in queries:
                session = m.session()
                for place, at in query:
                    try:
                        session.report(place, at)
                    except hereish.BudgetExhaustedError:
                        break
                    made += 1

        hypot, ours = best(5, smallest, reports)
        ratio = (ours / made) / (hypot / calls)
        rows.append(
            Row(
                f"one live report, {name} / one scalar np.hypot",
                f"{ratio:.0f}",
                "below 150",
                ratio < 150,
            )
        )
    return rows


def scaling() -> list[Row]:
    sizes = (10_000, 100_000, 1_000_000)
    rows = []
    for name, m in mechanisms().items():
        per_point = []
        for size in sizes:
            data = traces(size)
            (took,) = best(5 if size < 1_000_000 else 3, partial(hereish.sanitize, m, *data))
            per_point.append(took / len(data.points))
            del data
        spread = max(per_point) / min(per_point)
        rows.append(
            Row(
                f"time per point, {name}, slowest / fastest of 10^4, 10^5 and 10^6 traces",
                f"{spread:.2f}",
                "at most 1.2",
                spread <= 1.2,
            )
        )
    return rows


def growth() -> list[Row]:
    """The millionth report of a session against the first ones."""
    m = hereish.fixed_rate(hereish.Privacy(level=1e9, radius_m=1), reports=10**6)
    session = m.session()
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def many() -> None:
        for i in range(2000):
            session.report((60.17, 24.94), start + timedelta(seconds=i // 2000))

    (first,) = best(5, many)
    state = session.to_state()
    state["run"]["reports"], state["run"]["easy"] = 10**6, 7 * 10**5
    session = hereish.Session.from_state(m, state)
    (later,) = best(5, many)
    ratio = later / first
    return [
        Row("one live report after a million / one of the first", f"{ratio:.2f}", "1", ratio < 1.2)
    ]


def importing() -> list[Row]:
    def fresh(statement: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", statement], check=True)  # noqa: S603

    numpy, ours = best(7, fresh("import numpy"), fresh("import hereish"))
    return [
        Row("import hereish / import numpy", f"{ours / numpy:.2f}", "under 0.5 s", ours < 0.5),
    ]


PARTS = {
    part.__name__: part
    for part in (
        *(throughput, keyed, memory, live, growth, scaling, importing, starting, files, research),
        gateway,
    )
}


def table(rows: list[Row]) -> str:
    lines = ["| what | measured | wanted |", "|---|---|---|"]
    lines += [
        f"| {row.what} | {row.measured}{'' if row.met else ' (missed)'} | {row.wanted} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/benchmarks.md"
    )
    wanted = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # one core, where the system lets us choose
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = []
    for name in wanted.part or PARTS:
        print(f"… {name}", flush=True)
        rows += PARTS[name]()
    print(table(rows))
    if wanted.write:
        head, _, rest = REPORT.read_text(encoding="utf-8").partition(MARK)
        _, _, tail = rest.partition(MARK)
        REPORT.write_text(f"{head}{MARK}\n\n{table(rows)}\n\n{MARK}{tail}", encoding="utf-8")
        print(f"written to {REPORT.name}")


if __name__ == "__main__":
    main()
