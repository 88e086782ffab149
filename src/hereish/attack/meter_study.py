"""What a burglar and a supplier learn from released meter readings, as tables.

    python -m hereish.attack.meter_study

Each cell has two numbers: by taking the releases as they come, and by an observer who knows the
mechanism, replays it and makes a posterior of each reading (`hereish.attack.meter_observer`). That
observer also knows the readings of ten other homes. FAST is not replayed: its second number is
missing. Homes are those of another seed than the ones that anything was tuned on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from hereish.attack.meter_observer import (
    Believed,
    believe,
    observe,
    observe_w_event,
    prior_of,
)
from hereish.attack.smoothing import Prior
from hereish.core.types import Bools, Floats
from hereish.core.windows import Window
from hereish.domains.synthetic_readings import Readings, households
from hereish.evaluation.burglar import (
    balanced_accuracy,
    clock_of,
    day_features,
    evening_features,
    half_hour_features,
    is_busy,
)
from hereish.evaluation.meter_study import (
    DAY,
    MONTH,
    RADII_WH,
    SEED,
    SLOTS,
    SPACE,
    USUAL_WH,
    mechanisms,
    promise,
    publish_baselines,
    release_all,
    times_s,
)
from hereish.evaluation.supplier import bill_error, day_error, habits_told

BUDGETS: dict[str, Window] = {"day": DAY, "month": MONTH}
OTHER_HOMES, OTHER_SEED, DRAWS = 10, 3, 3


class Told(NamedTuple):
    """One mechanism's releases as they come, and as an observer believes them; None if there is
    no observer who knows that mechanism.
    """

    plain: Believed
    observed: Believed | None


def look_at(truth: Floats, radius_wh: float, window: Window, prior: Prior) -> dict[str, Told]:
    """What every mechanism tells of these homes."""
    homes, readings = truth.shape
    at_s, (privacy, w) = times_s(readings), promise(radius_wh, window)
    observed: dict[str, Believed] = {
        name: believe(observe(m, truth, at_s, DRAWS), prior)
        for name, m in mechanisms(radius_wh, window).items()
    }
    for name, raw in publish_baselines(truth, radius_wh, window, DRAWS).items():
        seen = [
            observe_w_event(name, raw[i], at_s, privacy.eps_per_m, w, USUAL_WH, SPACE)
            for i in range(homes)
        ]
        known = [one for one in seen if one is not None]
        if known:
            observed[name] = believe(known, prior)
    return {
        name: Told(as_they_come(each.wh, each.hard), observed.get(name))
        for name, each in release_all(truth, radius_wh, window, DRAWS).items()
    }


def as_they_come(wh: Floats, hard: Bools) -> Believed:
    """Readings that are believed."""
    return Believed(wh, is_busy(wh), hard)


def _by_radius(
    title: str,
    looked: Mapping[float, Mapping[str, Told]],
    score: Callable[[Believed], str],
    last: Mapping[str, Believed | str],
) -> str:
    head = " | ".join(f"within {radius:g} Wh" for radius in looked)
    rows = [f"| {title} | {head} |", "|---|" + "---|" * len(looked)]

    def cell(told: Told) -> str:
        return f"{score(told.plain)} → {'–' if told.observed is None else score(told.observed)}"

    for name in next(iter(looked.values())):
        cells = " | ".join(cell(each[name]) for each in looked.values())
        rows.append(f"| {name} | {cells} |")
    for name, one in last.items():
        same = one if isinstance(one, str) else score(one)
        rows.append(f"| {name} |{f' {same} |' * len(looked)}")
    return "\n".join(rows)


def burglar_tables(homes: Readings, looked: Mapping[float, Mapping[str, Told]]) -> dict[str, str]:
    """How often a burglar is right, who knows half of the homes: a table for each question."""
    known = len(homes.wh) // 2
    clock = clock_of(homes.present[:known], SLOTS)
    empty = np.asarray(~homes.present.reshape(len(homes.wh), -1, SLOTS).any(axis=2))

    def evening(seen: Believed) -> str:
        features = evening_features(seen.wh, seen.hard, SLOTS, seen.busy)
        return f"{balanced_accuracy(features, homes.home, known):.2f}"

    def half_hour(seen: Believed) -> str:
        features = half_hour_features(seen.wh, seen.busy, clock)
        return f"{balanced_accuracy(features, homes.present, known):.2f}"

    def day(seen: Believed) -> str:
        return f"{balanced_accuracy(day_features(seen.wh, seen.busy, SLOTS), empty, known):.2f}"

    truth = as_they_come(homes.wh, np.zeros(homes.wh.shape, dtype=np.bool_))
    at_times = np.broadcast_to(clock[None, :, None], (*homes.wh.shape, 1))
    alone = f"{balanced_accuracy(at_times, homes.present, known):.2f}"
    naked: dict[str, Believed | str] = {"the true readings": truth}
    title = "the burglar sees"
    return {
        "Somebody at home on that evening?": _by_radius(title, looked, evening, naked),
        "Somebody at home in that half hour?": _by_radius(
            title, looked, half_hour, {"the clock alone": alone, **naked}
        ),
        "Nobody at home on that day?": _by_radius(title, looked, day, naked),
    }


def supplier_tables(truth: Floats, looked: Mapping[float, Mapping[str, Told]]) -> dict[str, str]:
    """By how much sums are off, and how many homes are told by the shape of a day."""
    scores: dict[str, Callable[[Believed], str]] = {
        "Bills off by": lambda seen: f"{bill_error(seen.wh, truth):.0%}",
        "Sums of a day off by": lambda seen: f"{day_error(seen.wh, truth, SLOTS):.0%}",
        "Homes told by the shape of their days": (
            lambda seen: f"{habits_told(seen.wh, truth, SLOTS):.0%}"
        ),
        "Readings off by, Wh": lambda seen: f"{np.abs(seen.wh - truth).mean():.0f}",
    }
    return {
        name: _by_radius("the supplier sees", looked, score, {}) for name, score in scores.items()
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m hereish.attack.meter_study")
    parser.add_argument("--homes", type=int, default=20, help="made-up homes")
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--budget", choices=BUDGETS, help="both, unless one is given")
    options = parser.parse_args()
    homes = households(max(options.homes, 4), options.days, seed=SEED)
    prior = prior_of(households(OTHER_HOMES, options.days, seed=OTHER_SEED).wh)
    for name, window in BUDGETS.items():
        if options.budget not in (None, name):
            continue
        looked = {radius: look_at(homes.wh, radius, window, prior) for radius in RADII_WH}
        tables = burglar_tables(homes, looked) if window == DAY else {}
        for title, table in (tables | supplier_tables(homes.wh, looked)).items():
            print(f"{title} (as they come → by the observer), a {name}'s budget\n\n{table}\n")


if __name__ == "__main__":
    main()
