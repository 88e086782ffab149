"""Parts tried on made-up points when a mechanism is put together: misfits are found then."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hereish.core.decision import Question
from hereish.core.run import Run
from hereish.core.step import prepare
from hereish.core.types import Bools, Floats
from hereish.errors import HereishError, PartError

if TYPE_CHECKING:
    from hereish.core.mechanism import PredictiveMechanism


def check_parts_fit(m: PredictiveMechanism) -> None:
    """Run each part once on made-up points, so that a misfit is found here and not in use."""
    lanes = 2
    at_s = np.zeros(lanes)
    zeros = np.zeros((lanes, m.dim))
    half = np.full((lanes, m.uniforms), 0.5)
    every = np.ones(lanes, dtype=np.bool_)

    def part(name: str, call: Callable[[], Any], shape: tuple[int, ...], kind: str) -> Any:
        try:
            answer = np.asarray(call())
        except HereishError:
            raise
        except Exception as broken:
            raise PartError(f"{name} does not fit the other parts: {broken!r}") from broken
        if answer.shape != shape or answer.dtype.kind != kind:
            raise PartError(
                f"{name} must return an array of shape {shape} and kind {kind!r}, "
                f"found shape {answer.shape} and kind {answer.dtype.kind!r}"
            )
        return answer

    point = part("space.snap", lambda: m.space.snap(zeros), zeros.shape, "f")
    part("space.distance", lambda: m.space.distance(point, point), (lanes,), "f")
    draw = partial(m.space.noise, point, 1.0, half[:, m.decider.uniforms :])
    noisy = part("space.noise", draw, zeros.shape, "f")
    if not np.array_equal(noisy, m.space.snap(noisy)):
        raise PartError("space.noise must return points of the grid: end it with self.snap(…)")
    asked = Question(point, point, 1.0, 1.0, 1.0, True, every)
    part("decision", lambda: m.decider.decide(m.space, asked, half)[0], (lanes,), "b")
    empty = Run.empty(lanes, m.dim, m.memory)
    seen = empty._replace(
        values=np.broadcast_to(point[:, None], empty.values.shape),
        times_s=np.zeros_like(empty.times_s),
        reports=np.ones(lanes, dtype=np.int64),
        hard_at_s=at_s,
        tested_at_s=at_s,
    ).frozen()
    for run in (empty, seen):
        name = "prediction, budget manager, skip rule or window"
        part(name, partial(_fits, m, run, at_s + 60.0), (lanes,), "b")


def _fits(m: PredictiveMechanism, run: Run, at_s: Floats) -> Bools:
    return prepare(m, run, at_s).fits
