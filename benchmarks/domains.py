"""What it costs to follow numbers that are no places, against the same budget spent by a parrot."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

import hereish
from benchmarks.results import Result, shortest_times
from hereish.domains import smart_meter, stream

HOMES, READINGS = 5000, 48


def domains() -> list[Result]:
    """A batch of meters, by the last release and by a daily profile."""
    rng = np.random.default_rng(1)
    wh = np.abs(rng.normal(250.0, 40.0, (HOMES * READINGS, 1)))
    at_s = np.tile(1.7e9 + 1800.0 * np.arange(READINGS), HOMES)
    offsets = READINGS * np.arange(HOMES + 1)
    privacy = hereish.Privacy(level=math.log(10), radius_m=20)
    space = hereish.Vector(1, "l1", grid=1.0, low=0.0, high=5000.0)
    parrot = hereish.whole_day(privacy, reports=READINGS, space=space, prediction=hereish.Parrot())
    followed = {
        "last release, followed (stream)": stream(privacy, space, READINGS),
        "daily profile (smart_meter)": smart_meter(privacy),
    }
    repeated, *others = shortest_times(
        9,
        *(partial(hereish.sanitize, m, wh, at_s, offsets) for m in (parrot, *followed.values())),
    )
    return [
        Result(
            f"time per reading, 5,000 meters of a day: {name} / parrot",
            f"{took / repeated:.1f}",
            "at most 10",
            took <= 10 * repeated,
        )
        for name, took in zip(followed, others, strict=True)
    ]
