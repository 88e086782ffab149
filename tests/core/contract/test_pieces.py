"""Traces that come in pieces give the bits that they give as a whole, and share one budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest

import hereish
from hereish.core import batch
from hereish.core.types import Floats, Ints

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
SKIP = hereish.SkipBySpeed(kmh=30, since="tested")


def third(past: Sequence[hereish.Past], at_s: float) -> tuple[float, ...] | None:
    """The release before the release before the last, or the oldest there is."""
    return past[-1].value if past else None


MECHANISMS = {
    "stop": hereish.fixed_utility(PRIVACY, 3000),
    "predict": hereish.fixed_rate(PRIVACY, 30, on_exhausted="predict"),
    "skip": hereish.fixed_utility(PRIVACY, 3000, skip=SKIP),
    "windows": hereish.fixed_rate(PRIVACY, 10, skip=SKIP, window=timedelta(hours=5)),
    "limits": hereish.fixed_rate(
        PRIVACY,
        10,
        skip=SKIP,
        window=hereish.Every(timedelta(hours=5))
        & hereish.Hours(7).within(math.log(12))
        & hereish.Forever.within(math.log(200)),
    ),
    "rolling": hereish.fixed_utility(PRIVACY, 3000, window=hereish.Hours(7)),
    "memory": hereish.fixed_utility(PRIVACY, 3000, prediction=hereish.lift(third, memory=3)),
}


def ragged(rng: np.random.Generator, traces: int) -> tuple[Floats, Floats, Ints]:
    lengths = rng.integers(0, 60, traces)
    offsets = np.r_[0, np.cumsum(lengths)]
    points = 60.0 + np.cumsum(rng.normal(0, 0.004, (offsets[-1], 2)), axis=0) % 1.0
    at_s = np.cumsum(rng.exponential(900, offsets[-1]))
    return points, at_s, offsets


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("lanes", [7, 12_000])
def test_pieces_give_the_same_bits_as_the_whole(
    name: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LANES", lanes)
    m, rng = MECHANISMS[name], np.random.default_rng(3)
    points, at_s, offsets = ragged(rng, 40)
    uniforms = hereish.SeededDraws(4).uniforms(len(points) * m.uniforms).reshape(len(points), -1)
    whole = hereish.sanitize(m, points, at_s, offsets, uniforms=uniforms, run=m.run(40))
    cuts = np.sort(rng.integers(0, np.diff(offsets) + 1, (2, 40)), axis=0)
    edges = [offsets[:-1], offsets[:-1] + cuts[0], offsets[:-1] + cuts[1], offsets[1:]]
    run, kinds = m.run(40), np.full(len(points), "", dtype="<U8")
    values = np.full_like(points, np.nan)
    for low, high in pairwise(edges):
        rows = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])
        ends = np.r_[0, np.cumsum(high - low)]
        piece = hereish.sanitize(
            m, points[rows], at_s[rows], ends, uniforms=uniforms[rows], run=run
        )
        values[rows], kinds[rows] = piece.value, piece.kind
        assert piece.run is not None
        run = piece.run
    assert values.tobytes() == whole.value.tobytes()
    assert kinds.tolist() == whole.kind.tolist()
    assert whole.run is not None
    for one, other in zip(run, whole.run, strict=True):
        assert one.tobytes() == other.tobytes()
    assert {"hard", "easy"} <= set(kinds)


def test_the_run_that_is_given_is_not_changed_and_none_is_returned_unasked() -> None:
    m = MECHANISMS["stop"]
    run = m.run(1)
    hereish.sanitize(m, [(60.0, 25.0)], [0.0], [0, 1], run=run)
    assert run.reports.tolist() == [0]
    assert hereish.sanitize(m, [(60.0, 25.0)], [0.0], [0, 1]).run is None


def test_a_run_that_does_not_fit_is_refused() -> None:
    m = MECHANISMS["stop"]
    later = hereish.sanitize(m, [(60.0, 25.0)], [100.0], [0, 1], run=m.run(1)).run
    assert later is not None
    with pytest.raises(hereish.PointError, match="before the last report of its run"):
        hereish.sanitize(m, [(60.0, 25.0)], [99.0], [0, 1], run=later)
    with pytest.raises(hereish.ParameterError, match="2 lanes, and there are 1 traces"):
        hereish.sanitize(m, [(60.0, 25.0)], [200.0], [0, 1], run=m.run(2))
    odd = later._replace(spent=later.spent * (1 / 3))
    with pytest.raises(hereish.ParameterError, match="no sum of costs"):
        hereish.sanitize(m, [(60.0, 25.0)], [200.0], [0, 1], run=odd)
    rich = later._replace(spent=np.array([-1.0]))
    with pytest.raises(hereish.ParameterError, match="less than nothing"):
        hereish.sanitize(m, [(60.0, 25.0)], [200.0], [0, 1], run=rich)
