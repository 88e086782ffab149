"""How far off repeatedly published counts are, against other ways, as a table.

    python -m hereish.evaluation.count_study

A made-up database of some thousand persons in a few groups, whose histogram is published a hundred
times; each method promises the same: eps-differential privacy for a person, all publications
together. Nothing was tuned on these databases: the numbers of `hereish.domains` were found on
walks, jumps and white noise of one and of six numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from hereish.core.batch import sanitize
from hereish.core.mechanism import PredictiveMechanism, independent
from hereish.core.privacy import Privacy
from hereish.core.types import Floats
from hereish.domains.counts import count_space, dashboard
from hereish.domains.synthetic_counts import histograms, snapshots
from hereish.evaluation.stream_baselines import BASELINES

MOVING = (0.0, 0.001, 0.01, 0.05, 0.2, 1.0)
EPSILONS = (0.3, 1.0, 3.0)
INDEPENDENT, OURS = "independent", "hereish"
_GROUPS, _PERSONS, _PUBLICATIONS = 8, 5000, 96
SEED = 2


def databases(count: int, moving: float, groups: int = _GROUPS, seed: int = SEED) -> Floats:
    """(databases, publications, groups) Histograms of databases in which persons move so often.

    Fewer groups than there are are the first ones: one is a single count.
    """
    found = [
        snapshots(_PERSONS, _GROUPS, _PUBLICATIONS, moving=moving, seed=1000 * seed + i)
        for i in range(count)
    ]
    return np.array([histograms(each, _GROUPS)[:, :groups] for each in found])


def release_all(truth: Floats, eps: float, seed: int = 3) -> dict[str, Floats]:
    """What each method publishes of these histograms."""
    _, publications, groups = truth.shape
    space = count_space(groups, highest=_PERSONS)
    privacy = Privacy(eps, 1.0)
    alone = independent(privacy, reports=publications, space=space)
    found = {INDEPENDENT: _sanitized(alone, truth, seed)}
    rng = np.random.default_rng(seed)
    for name, baseline in BASELINES.items():
        published = baseline(
            truth, eps, publications, rng, sensitivity=space.sensitivity, first=_PERSONS / _GROUPS
        )
        found[name] = np.clip(published, 0.0, _PERSONS)
    found[OURS] = _sanitized(dashboard(eps, groups, publications, highest=_PERSONS), truth, seed)
    return found


def _sanitized(m: PredictiveMechanism, truth: Floats, seed: int) -> Floats:
    lanes, publications, groups = truth.shape
    at_s = np.tile(60.0 * np.arange(publications), lanes)
    offsets = np.arange(lanes + 1) * publications
    out = sanitize(m, truth.reshape(-1, groups), at_s, offsets, seed=seed)
    return out.value.reshape(truth.shape)


def errors(count: int, groups: int = _GROUPS) -> Iterator[tuple[float, float, dict[str, float]]]:
    """(share that moves, eps, average error of a count by method)."""
    for moving in MOVING:
        truth = databases(count, moving, groups)
        for eps in EPSILONS:
            found = release_all(truth, eps)
            yield moving, eps, {name: float(np.abs(v - truth).mean()) for name, v in found.items()}


def error_table(count: int, groups: int = _GROUPS) -> str:
    """Average errors of a count, and in brackets their share of those of independent noise."""
    names = [INDEPENDENT, *BASELINES, OURS]
    rows = [f"| persons who move | eps | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for moving, eps, found in errors(count, groups):
        cells = [f"{found[name]:.1f} ({found[name] / found[INDEPENDENT]:.2f})" for name in names]
        rows.append(f"| {moving:.1%} | {eps:g} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m hereish.evaluation.count_study")
    parser.add_argument("--databases", type=int, default=20, help="made-up databases of each kind")
    options = parser.parse_args()
    about = f"{_PERSONS} persons, {_PUBLICATIONS} publications"
    print(f"A histogram of {_GROUPS} groups, {about}; average error of a count\n")
    print(error_table(options.databases))
    print(f"\nA single count, {about}\n")
    print(error_table(options.databases, groups=1))


if __name__ == "__main__":
    main()
