"""BD, BA and FAST spend what they promise, and publish where the numbers have changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hereish.core.types import Floats
from hereish.evaluation import stream_baselines
from hereish.evaluation.stream_baselines import BASELINES, Baseline, filtered_sampling

W, EPS, SENSITIVITY = 20, 2.0, 3.0
W_EVENT = [name for name in BASELINES if "w-event" in name]


def publish(baseline: Baseline, x: Floats, rng: Any = None) -> Floats:
    rng = rng or np.random.default_rng(1)
    return baseline(x, EPS, W, rng, sensitivity=SENSITIVITY, first=0.0)


def spent_per_window(baseline: Baseline, x: Floats, monkeypatch: pytest.MonkeyPatch) -> Floats:
    """What the publications of one lane cost in each window, from the noise that they get."""
    costs = np.zeros(x.shape[1])
    step = -1

    def apart(last: Floats, now: Floats, eps: float, sensitivity: float, rng: Any) -> Floats:
        nonlocal step
        step += 1
        costs[step] += eps
        return np.asarray(np.abs(last - now).mean(axis=1))

    planned: list[float] = []

    def drawn(now: Floats, eps: Floats, sensitivity: float, rng: Any) -> Floats:
        planned.append(float(eps[0]))
        return now + 1e-9

    monkeypatch.setattr(stream_baselines, "_noisy_dissimilarity", apart)
    monkeypatch.setattr(stream_baselines, "_laplace", drawn)
    out = publish(baseline, x)
    published = np.diff(out[0, :, 0], prepend=0.0) != 0.0
    costs += np.where(published, planned, 0.0)
    return np.asarray(costs.reshape(-1, W).sum(axis=1))


STREAMS = {
    "constant": np.full((1, 3 * W, 2), 500.0),
    "jumping": 1e6 * np.random.default_rng(2).random((1, 3 * W, 2)),
    "in steps": np.repeat(1e5 * np.random.default_rng(3).random((1, 12, 2)), 5, axis=1),
    "late": np.concatenate([np.zeros((1, W - 5, 2)), np.full((1, 2 * W + 5, 2), 9e5)], axis=1),
}


@pytest.mark.parametrize("name", W_EVENT)
@pytest.mark.parametrize("stream", STREAMS)
def test_no_window_costs_more_than_its_budget(
    name: str, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = spent_per_window(BASELINES[name], STREAMS[stream], monkeypatch)
    assert (spent <= EPS * (1 + 1e-9)).all()
    assert (spent >= EPS / 2 * (1 - 1e-9)).all(), "dissimilarities cost half of it"
    if stream == "late" and name.startswith("BA"):
        assert spent[0] > 0.8 * EPS, "what was not used is absorbed"


@pytest.mark.parametrize("name", W_EVENT)
def test_what_rests_is_repeated_and_what_jumps_is_published(name: str) -> None:
    rest = publish(BASELINES[name], np.full((50, W, 2), 1000.0))
    changes = (np.diff(rest, axis=1) != 0.0).any(axis=2)
    assert changes.mean() < 0.5
    jump = np.full((50, W, 2), 1000.0)
    jump[:, 10:] = 1e5
    late = publish(BASELINES[name], jump)
    assert np.abs(late[:, -1] - 1e5).mean() < 0.5e5


@pytest.mark.parametrize("stream", STREAMS)
def test_fast_takes_no_more_samples_than_its_budget_has_shares(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []

    def drawn(now: Floats, eps: Floats, sensitivity: float, rng: Any) -> Floats:
        assert sensitivity == SENSITIVITY
        shares.append(float(eps[0]))
        return now + 1.0 + len(shares) % 2  # never what is known already

    monkeypatch.setattr(stream_baselines, "_SAMPLES", 0.25)
    monkeypatch.setattr(stream_baselines, "_laplace", drawn)
    out = publish(filtered_sampling, STREAMS[stream])
    sampled = np.diff(out[0, :, 0], prepend=-1.0) != 0.0
    spent = np.where(sampled, shares, 0.0).reshape(-1, W).sum(axis=1)
    assert (spent <= EPS * (1 + 1e-9)).all()
    assert (spent > 0.0).all()
    if stream == "jumping":
        np.testing.assert_allclose(spent, EPS, err_msg="news is followed as long as there is money")


def test_fast_smooths_what_rests_and_samples_what_changes_more_often() -> None:
    rng = np.random.default_rng(4)
    rest = np.full((40, 10 * W, 1), 1e4)
    walk = rest + np.cumsum(rng.normal(0.0, 3000.0, rest.shape), axis=1)
    counts = []
    for x in (rest, walk):
        out = publish(filtered_sampling, x)
        counts.append(float((np.diff(out, axis=1) != 0.0).mean()))
        if x is rest:
            late = np.abs(out[:, -W:] - x[:, -W:]).mean()
            assert late < 0.8 * SENSITIVITY * round(0.1 * W) / EPS, "less than one sample's noise"
    assert counts[0] < 0.8 * counts[1]
