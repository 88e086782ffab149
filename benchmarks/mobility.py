"""What the mobility model costs in a batch, against the last release and memory alone."""

from __future__ import annotations

from functools import partial

import numpy as np

import hereish
from benchmarks.mechanism import PRIVACY
from benchmarks.results import Result, shortest_times
from benchmarks.whole_days import days_of
from hereish import synthetic
from hereish.mobility import learn_model

USERS, DAYS = 4_000, 7


def mobility() -> list[Result]:
    """A week of many people, with and without a model of a group of sixteen places."""
    data, zone = days_of(USERS, DAYS), synthetic.TIME_ZONE
    some = slice(0, data.offsets[100])
    whose = np.repeat(np.arange(100), np.diff(data.offsets[:101]))
    group = learn_model(
        data.at_s[some], data.points[some], whose, name="some", time_zone=zone, places=16
    )
    predictions: dict[str, hereish.Prediction] = {
        "parrot": hereish.Parrot(),
        "memory of places": hereish.PlaceMemory(time_zone=zone),
        "mobility": hereish.Mobility(time_zone=zone),
        "mobility of a group": hereish.Mobility(time_zone=zone, model=group),
    }
    window = hereish.Day(zone)
    parrot, *others = shortest_times(
        5,
        *(
            partial(
                hereish.sanitize,
                hereish.whole_day(PRIVACY, window=window, prediction=prediction),
                *data,
            )
            for prediction in predictions.values()
        ),
    )
    return [
        Result(
            f"time per report, {USERS:,} people, {DAYS} days, whole_day: {name} / parrot",
            f"{took / parrot:.1f}",
            "at most 10",
            took <= 10 * parrot,
        )
        for name, took in zip(list(predictions)[1:], others, strict=True)
    ]
