"""A burglar who reads released meter readings: was somebody at home on that evening?

The burglar knows other homes, whose evenings and releases are both known to them, learns from these
what an evening with somebody at home looks like, and guesses for the rest. A linear discriminant
of a few features: simple, and told everything that is released, kinds included. That is one
observer, not a bound; the bound is the guarantee.
"""

from __future__ import annotations

import numpy as np

from hereish.core.types import Bools, Floats

_NIGHT, _EVENING = (1, 5), (18, 23)  # hours of the clock
_LITTLE_WH = 10.0
_RIDGE = 1e-3  # features may be the same in all homes


def evening_features(released: Floats, hard: Bools, slots: int) -> Floats:
    """(homes, days, features) What stands out of an evening: its level, its peaks, its noise.

    `released` and `hard` are (homes, readings), with so many slots per day.
    """
    days = released.reshape(len(released), -1, slots)
    fresh = hard.reshape(days.shape)
    evening, night = (slice(*(hour * slots // 24 for hour in part)) for part in (_EVENING, _NIGHT))
    # What a home takes when nobody does anything, as far as the releases show it.
    idle = np.quantile(days, 0.25, axis=(1, 2))[:, None] + _LITTLE_WH
    during, before = days[:, :, evening], days[:, :, night]
    features = (
        np.log((during.mean(axis=2) + _LITTLE_WH) / idle),
        np.log((during.max(axis=2) + _LITTLE_WH) / idle),
        np.log((during.mean(axis=2) + _LITTLE_WH) / (before.mean(axis=2) + _LITTLE_WH)),
        (during > 1.5 * idle[..., None]).mean(axis=2),
        fresh[:, :, evening].mean(axis=2),
    )
    return np.stack(features, axis=2)


def balanced_accuracy(features: Floats, home: Bools, known: int) -> float:
    """How often the burglar is right on homes after the first `known`: the mean of both answers'.

    0.5 is what a coin achieves, and what there is to say where all evenings are alike; 1 is
    certainty.
    """
    if any(part.all() or not part.any() for part in (home[:known], home[known:])):
        return 0.5
    spread = features[:known].reshape(-1, features.shape[2])
    centre, scale = spread.mean(axis=0), spread.std(axis=0) + 1e-9
    scaled = np.clip((features - centre) / scale, -5.0, 5.0)
    learnt = scaled[:known].reshape(-1, features.shape[2])
    at_home = home[:known].reshape(-1)
    apart = learnt[at_home].mean(axis=0) - learnt[~at_home].mean(axis=0)
    within = np.cov(learnt[at_home], rowvar=False) + np.cov(learnt[~at_home], rowvar=False)
    weights = np.linalg.solve(within + _RIDGE * np.eye(len(apart)), apart)
    score = learnt @ weights
    cut = 0.5 * (score[at_home].mean() + score[~at_home].mean())
    guessed, truth = scaled[known:] @ weights > cut, home[known:]
    return float(0.5 * (guessed[truth].mean() + (~guessed[~truth]).mean()))
