"""How many more reports a delta brings at the same noise, for made-up people.

`python examples/with_delta.py` prints the table of docs/guarantee.md: reports until the budget is
spent, in the median, of people who report every ten minutes. Nothing here is private: the noise
comes from a seed.
"""

# ruff: noqa: T201  # it prints

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import hereish
from hereish import PredictiveMechanism, Privacy, synthetic

LEVEL, RADIUS_M, DELTA = math.log(10), 100.0, 1e-6
PEOPLE, DAYS = 40, 21
CLOCK_S = np.arange(0.0, 86400.0, 600.0)
Build = Callable[[Privacy, float], PredictiveMechanism]


def independent(privacy: Privacy, accuracy_m: float) -> PredictiveMechanism:
    """Fresh noise for every report."""
    return hereish.independent(privacy, accuracy_m=accuracy_m)


def predictive(privacy: Privacy, accuracy_m: float) -> PredictiveMechanism:
    """The paper's, with one accuracy."""
    return hereish.fixed_utility(privacy, accuracy_m)


MECHANISMS: dict[str, Build] = {"independent noise": independent, "fixed utility": predictive}


def reports(mechanism: PredictiveMechanism) -> int:
    """How many are released until the budget is spent, in the median."""
    places = synthetic.whereabouts_on_days(PEOPLE, 1, DAYS, CLOCK_S)
    points = places.reshape(-1, 2)
    days_s = synthetic.MIDNIGHT_S + 86400.0 * np.arange(DAYS)
    at_s = np.tile((days_s[:, None] + CLOCK_S).ravel(), PEOPLE)
    length = len(at_s) // PEOPLE
    offsets = np.arange(PEOPLE + 1) * length
    out = hereish.sanitize(mechanism, points, at_s, offsets, seed=1)
    made = out.released.reshape(PEOPLE, length).sum(axis=1)
    if (made == length).any():
        raise SystemExit("the days are too few: somebody has budget left")
    return int(np.median(made))


def main() -> None:
    """Print the table."""
    print("| accuracy | mechanism | reports | with delta = 10⁻⁶ | times |")
    print("|---|---|---|---|---|")
    for accuracy_m in (3000.0, 6000.0, 12000.0):
        for name, build in MECHANISMS.items():
            without = reports(build(Privacy(LEVEL, RADIUS_M), accuracy_m))
            within = reports(build(Privacy(LEVEL, RADIUS_M, DELTA), accuracy_m))
            times = f"{within / without:.1f}"
            print(f"| {accuracy_m / 1000:.0f} km | {name} | {without} | {within} | {times} |")


if __name__ == "__main__":
    main()
