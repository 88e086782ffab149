"""What the mechanism costs: batches, live sessions, memory and the import."""

from __future__ import annotations

import math
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import numpy as np

import hereish
from benchmarks.results import Result, shortest_times
from hereish import synthetic
from hereish.core.types import Floats, Ints

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
POINTS_EACH = 30


class Traces(NamedTuple):
    """Traces laid end to end, as `hereish.sanitize` takes them."""

    points: Floats
    at_s: Floats
    offsets: Ints


def traces(count: int) -> Traces:
    """A synthetic day of so many people."""
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
    """What is measured, by name."""
    return {
        "fixed utility, 3 km": hereish.fixed_utility(PRIVACY, accuracy_m=3000),
        "fixed rate, 30 reports": hereish.fixed_rate(PRIVACY, reports=30),
    }


def throughput() -> list[Result]:
    """A batch against independent noise in plain NumPy."""
    data = traces(200_000)
    rows = []
    for name, m in mechanisms().items():
        plain, careless, ours = shortest_times(
            9,
            lambda: plain_numpy(data.points),
            lambda: plain_numpy(data.points, wrap=False),
            partial(hereish.sanitize, m, *data),
        )
        what = f"points per second, {name}, 200,000 traces of 30: hereish.sanitize (secure) / "
        ratio = plain / ours
        rows += [
            Result(
                f"{what}plain NumPy independent noise (PCG64)",
                f"{ratio:.2f}",
                "at least 0.8",
                ratio >= 0.8,
            ),
            Result(
                f"{what}the same that leaves longitudes beyond ±180 as they come",
                f"{careless / ours:.2f}",
                "for comparison",
                True,
            ),
        ]
    return rows


def keyed_draws() -> list[Result]:
    """Draws that are a function of the report, against draws from the operating system's key."""
    data, m = traces(200_000), mechanisms()["fixed utility, 3 km"]
    users = [f"user {i}" for i in range(200_000)]
    draws = hereish.KeyedDraws(b"k" * 32)
    secure, ours = shortest_times(
        7,
        partial(hereish.sanitize, m, *data),
        partial(hereish.sanitize, m, *data, draws=draws, users=users),
    )
    ratio = secure / ours
    what = "points per second, fixed utility, 3 km, 200,000 traces of 30: KeyedDraws / SecureDraws"
    return [Result(what, f"{ratio:.2f}", "at least 0.6", ratio >= 0.6)]


def memory() -> list[Result]:
    """The peak memory of a batch against its inputs and outputs."""
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
            Result(
                f"peak memory, {name}, 200,000 traces of 30 / inputs plus outputs",
                f"{ratio:.2f}",
                "below 3",
                ratio < 3,
            )
        )
    return rows


def live() -> list[Result]:
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

        hypot, ours = shortest_times(5, smallest, reports)
        ratio = (ours / made) / (hypot / calls)
        rows.append(
            Result(
                f"one live report, {name} / one scalar np.hypot",
                f"{ratio:.0f}",
                "below 150",
                ratio < 150,
            )
        )
    return rows


def scaling() -> list[Result]:
    """The time per point of small and large batches."""
    sizes = (10_000, 100_000, 1_000_000)
    rows = []
    for name, m in mechanisms().items():
        per_point = []
        for size in sizes:
            data = traces(size)
            (took,) = shortest_times(
                5 if size < 1_000_000 else 3, partial(hereish.sanitize, m, *data)
            )
            per_point.append(took / len(data.points))
            del data
        spread = max(per_point) / min(per_point)
        rows.append(
            Result(
                f"time per point, {name}, slowest / fastest of 10^4, 10^5 and 10^6 traces",
                f"{spread:.2f}",
                "at most 1.2",
                spread <= 1.2,
            )
        )
    return rows


def growth() -> list[Result]:
    """The millionth report of a session against the first ones."""
    m = hereish.fixed_rate(hereish.Privacy(level=1e9, radius_m=1), reports=10**6)
    session = m.session()
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def many() -> None:
        for i in range(2000):
            session.report((60.17, 24.94), start + timedelta(seconds=i // 2000))

    (first,) = shortest_times(5, many)
    state = session.to_state()
    state["run"]["reports"], state["run"]["easy"] = 10**6, 7 * 10**5
    session = hereish.Session.from_state(m, state)
    (later,) = shortest_times(5, many)
    ratio = later / first
    return [
        Result(
            "one live report after a million / one of the first", f"{ratio:.2f}", "1", ratio < 1.2
        )
    ]


def nested() -> list[Result]:
    """A live report that three budgets are asked for, against one with one budget."""
    day = hereish.Day("UTC")
    windows = (day, day & hereish.Days(30).within(1e10) & hereish.Forever.within(1e11))
    sessions = [
        hereish.fixed_rate(hereish.Privacy(1e9, 1), reports=10**6, window=window).session()
        for window in windows
    ]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [start + timedelta(seconds=60 * i) for i in range(1400)]

    def many(number: int) -> None:
        session = sessions[number]
        for at in moments:
            session.report((60.17, 24.94), at)
        sessions[number] = session.mechanism.session()

    one, three = shortest_times(7, partial(many, 0), partial(many, 1))
    ratio = three / one
    return [
        Result(
            "one live report with budgets of three windows / of one",
            f"{ratio:.2f}",
            "at most 1.3",
            ratio < 1.3,
        )
    ]


def import_time() -> list[Result]:
    """The import of hereish against that of NumPy, each in a new process."""

    def fresh(statement: str) -> Callable[[], object]:
        command = [sys.executable, "-c", statement]
        return lambda: subprocess.run(command, check=True)  # noqa: S603  # our own statements

    numpy, ours = shortest_times(7, fresh("import numpy"), fresh("import hereish"))
    return [
        Result("import hereish / import numpy", f"{ours / numpy:.2f}", "under 0.5 s", ours < 0.5),
    ]
