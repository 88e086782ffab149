"""How far off released meter readings are, as tables.

    python -m hereish.evaluation.meter_study
    python -m hereish.evaluation.meter_study --household householdpower.csv

What a burglar and a supplier make of them is in `hereish.attack.meter_study`.

Made-up homes are those of another seed than the ones that anything was tuned on. A measured
household is a CSV file with a time and a mean power in kW in its first two columns; its first year
is left out, since it was looked at while the mechanism was designed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hereish.core.batch import sanitize
from hereish.core.mechanism import PredictiveMechanism, independent
from hereish.core.privacy import Privacy
from hereish.core.types import Bools, Floats
from hereish.core.vector import Vector
from hereish.core.windows import Day, Month, Window
from hereish.domains.meter import smart_meter
from hereish.domains.streams import stream
from hereish.domains.synthetic_readings import START_S, households
from hereish.errors import ParameterError
from hereish.evaluation.stream_baselines import BASELINES

SEED = 2  # of the homes that are scored; those of 1 were tuned on
RADII_WH = (1.0, 5.0, 20.0, 100.0)
HIGHEST_WH, USUAL_WH = 5000.0, 250.0
DAY, MONTH = Day("UTC"), Month("UTC")
SLOTS, _HALF_HOUR_S, _DAYS_IN_MONTH = 48, 1800.0, 31
LAST, PROFILE, INDEPENDENT = "hereish, last release", "hereish, daily profile", "independent"
SPACE = Vector(1, "l1", 1.0, 0.0, HIGHEST_WH, unit="Wh")


@dataclass(frozen=True)
class Released:
    """What one mechanism released of some homes."""

    wh: Floats  # (homes, readings)
    hard: Bools  # (homes, readings) fresh noise

    def error_wh(self, truth: Floats) -> float:
        return float(np.abs(self.wh - truth).mean())


def release_all(truth: Floats, radius_wh: float, window: Window, seed: int) -> dict[str, Released]:
    """What each mechanism releases, all with the promise of ln 10 within this radius."""
    ours = mechanisms(radius_wh, window)
    found = {INDEPENDENT: _sanitized(ours.pop(INDEPENDENT), truth, seed)}
    for name, raw in publish_baselines(truth, radius_wh, window, seed).items():
        fresh = np.diff(raw, axis=1, prepend=USUAL_WH) != 0.0
        found[name] = Released(np.clip(raw, 0.0, HIGHEST_WH), fresh)
    return found | {name: _sanitized(m, truth, seed) for name, m in ours.items()}


def mechanisms(radius_wh: float, window: Window) -> dict[str, PredictiveMechanism]:
    """Those of hereish, and independent noise, with this promise."""
    privacy, readings = promise(radius_wh, window)
    return {
        INDEPENDENT: independent(
            privacy, reports=readings, space=SPACE, window=window, on_exhausted="predict"
        ),
        LAST: stream(privacy, SPACE, readings, window=window, on_exhausted="predict"),
        PROFILE: smart_meter(privacy, window=window),
    }


def promise(radius_wh: float, window: Window) -> tuple[Privacy, int]:
    """And how many readings of a window share it."""
    readings = SLOTS if window == DAY else SLOTS * _DAYS_IN_MONTH
    return Privacy(math.log(10.0), radius_wh), readings


def publish_baselines(
    truth: Floats, radius_wh: float, window: Window, seed: int
) -> dict[str, Floats]:
    """What the mechanisms of others publish, beyond the bounds too."""
    privacy, readings = promise(radius_wh, window)
    x, rng = truth[:, :, None], np.random.default_rng(seed)
    return {
        name: baseline(x, privacy.eps_per_m, readings, rng, sensitivity=1.0, first=USUAL_WH)[..., 0]
        for name, baseline in BASELINES.items()
    }


def times_s(readings: int) -> Floats:
    """When each of so many readings is reported: a second before its interval ends."""
    return np.asarray(START_S + _HALF_HOUR_S * np.arange(1, readings + 1) - 1.0)


def _sanitized(m: PredictiveMechanism, truth: Floats, seed: int) -> Released:
    homes, readings = truth.shape
    at_s = np.tile(times_s(readings), homes)
    out = sanitize(m, truth.reshape(-1, 1), at_s, np.arange(homes + 1) * readings, seed=seed)
    return Released(out.value.reshape(truth.shape), out.hard.reshape(truth.shape))


def data_sets(homes: int, days: int, seed: int = SEED) -> dict[str, Floats]:
    """Readings by name, (homes, readings): from slow ones to such that nothing can be guessed."""
    usual = households(homes, days, seed=seed).wh
    return {
        "steady homes": households(homes, days, character="steady", seed=seed).wh,
        "usual homes": usual,
        "restless homes": households(homes, days, character="restless", seed=seed).wh,
        "usual homes, shuffled": np.random.default_rng(seed).permuted(usual, axis=1),
        "uniform up to 5 kWh": np.random.default_rng(seed).uniform(0.0, HIGHEST_WH, usual.shape),
    }


def read_household(path: Path, days: int = 28) -> Floats:
    """Half-hourly readings of a measured household, (parts of so many days, readings), in Wh.

    From minutes of mean power in kW. Half hours of which minutes are missing repeat the last one.
    """
    from pyarrow import csv  # here because only this needs it

    table = csv.read_csv(path)
    if len(table.column_names) < 2:
        raise ParameterError(f"{path.name} must have a time and a power in kW, found one column")
    at_s = table.column(0).cast("timestamp[s]").cast("int64").to_numpy()
    power_kw = table.column(1).cast("float64").to_numpy()
    slot = at_s // int(_HALF_HOUR_S)
    first = int(slot[0] // SLOTS + 365 + 1) * SLOTS  # a midnight, after the first year
    kept = (slot >= first) & np.isfinite(power_kw)
    count = np.bincount(slot[kept] - first)
    total = np.bincount(slot[kept] - first, weights=power_kw[kept])
    known = count > 0
    newest = np.maximum.accumulate(np.where(known, np.arange(len(count)), 0))
    wh = (total / np.maximum(count, 1) * 500.0)[newest]
    parts = len(wh) // (days * SLOTS)
    if not parts:
        raise ParameterError(f"{path.name} must hold a year and {days} days, found less")
    return np.asarray(wh[: parts * days * SLOTS].reshape(parts, -1))


def error_table(sets: Mapping[str, Floats], window: Window, radii_wh: tuple[float, ...]) -> str:
    """Average errors in Wh, and in brackets their share of those of independent noise."""
    head = " | ".join(f"within {radius:g} Wh" for radius in radii_wh)
    rows = [f"| | | {head} |", "|---|---|" + "---|" * len(radii_wh)]
    for name, truth in sets.items():
        found = [release_all(truth, radius, window, seed=3) for radius in radii_wh]
        for mechanism in found[0]:
            cells = []
            for released in found:
                error = released[mechanism].error_wh(truth)
                share = error / released[INDEPENDENT].error_wh(truth)
                cells.append(f"{error:.0f} ({share:.2f})")
            rows.append(f"| {name} | {mechanism} | {' | '.join(cells)} |")
        constant = np.abs(truth - np.median(truth)).mean()
        rows.append(f"| {name} | (their median, always) |{f' {constant:.0f} |' * len(radii_wh)}")
    return "\n".join(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m hereish.evaluation.meter_study")
    parser.add_argument("--homes", type=int, default=20, help="made-up homes of each kind")
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--household", type=Path, help="CSV of a measured household")
    options = parser.parse_args()
    sets = data_sets(options.homes, options.days)
    if options.household is not None:
        sets["a measured household"] = read_household(options.household, options.days)
    print("A day's budget, ln 10 within so many Wh; average errors in Wh (share of independent)\n")
    print(error_table(sets, DAY, RADII_WH))
    print("\nA month's budget\n")
    print(error_table({"usual homes": sets["usual homes"]}, MONTH, RADII_WH))


if __name__ == "__main__":
    main()
