"""Parts looked at, and tried on made-up points, when a mechanism is put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hereish.core.decision import (
    ClosenessFunction,
    Decision,
    FunctionTest,
    Question,
    TestThenNoise,
)
from hereish.core.ensemble import Ensemble
from hereish.core.filter import Filter
from hereish.core.linear import Linear
from hereish.core.noise_first import NoiseFirst
from hereish.core.part_calls import OUR_SPACES
from hereish.core.parts import check_declared, declared
from hereish.core.places import PlaceMemory
from hereish.core.prediction import Prediction, Tracker
from hereish.core.remap import PriorRemap
from hereish.core.run import Run
from hereish.core.spaces import Space, Sphere
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
    if isinstance(m.decider, NoiseFirst):
        _check_has_unrounded_noise(m.space)
        draw = partial(m.space.unrounded_noise, point, 1.0, half[:, m.decider.uniforms :])  # type: ignore[attr-defined]  # it has
        unrounded = part("space.unrounded_noise", draw, zeros.shape, "f")
        if not np.array_equal(noisy, m.space.snap(unrounded)):
            raise PartError("space.noise must return self.snap(self.unrounded_noise(…))")
    _check_knows_space(m)
    asked = Question(point, point, 1.0, 1.0, 1.0, True, every)
    part("decision", lambda: m.decider.decide(m.space, asked, half)[0], (lanes,), "b")
    empty = m.empty_run(lanes)
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


def _check_knows_space(m: PredictiveMechanism) -> None:
    """Refuse parts of hereish that would take the coordinates of this space for others."""
    _check_told_space(m, m.prediction)
    if isinstance(m.remap, PriorRemap) and not isinstance(m.space, Sphere):
        raise PartError(
            "PriorRemap moves places on a hereish.Sphere by a map of latitude and longitude, found "
            f"{type(m.space).__name__}"
        )


def _check_told_space(m: PredictiveMechanism, prediction: object) -> None:
    if isinstance(prediction, Ensemble):
        for one in prediction.members:
            _check_told_space(m, one)
    if not isinstance(prediction, (PlaceMemory, Linear, Filter, Ensemble)):
        return
    told, name = prediction.space, type(prediction).__name__
    other = type(m.space) is not type(told)
    # A space of a user's own may be told as the one of ours that it is like.
    if len(told.coordinates) != m.dim or (other and type(m.space) in OUR_SPACES):
        raise PartError(
            f"{name} must be told the space of the mechanism, {m.space!r}, found {told!r}; write "
            f"{name}(space)"
        )


def _fits(m: PredictiveMechanism, run: Run, at_s: Floats) -> Bools:
    return prepare(m, run, at_s).fits


def _check_has_unrounded_noise(space: Space) -> None:
    """Refuse a space without `unrounded_noise`, or with that of another noise than its own."""
    kind = type(space)
    for base in kind.__mro__:
        if "unrounded_noise" in vars(base):
            return
        if "noise" in vars(base) and hasattr(kind, "unrounded_noise"):
            raise PartError(
                f"NoiseFirst needs a space whose noise is that of its unrounded_noise, and "
                f"{kind.__name__} has a noise of its own and inherits unrounded_noise; override "
                "unrounded_noise instead"
            )
    raise PartError(
        f"NoiseFirst needs a space with a method unrounded_noise(x, eps, u), of which noise is the "
        f"snap, found none in {kind.__name__}; add it, or use hereish.LaplaceTest"
    )


def declared_decision(decision: Decision | ClosenessFunction) -> Decision:
    """A decision whose declarations were looked at; a plain function as a closeness test."""
    decider = declared(decision, "closeness test", FunctionTest, "uniforms", "private")
    kind = type(decider)
    if isinstance(decider, TestThenNoise):
        for name in ("costs", "decide"):
            if getattr(kind, name) is not getattr(TestThenNoise, name) or name in vars(decider):
                raise PartError(
                    f"a closeness test must not have a {name} of its own, found one in "
                    f"{kind.__name__}; what else decides is a hereish.Decision of its own"
                )
    elif not (hasattr(kind, "costs") and hasattr(kind, "decide")):
        raise PartError(
            f"{kind.__name__} must derive from hereish.TestThenNoise if it is a closeness test, or "
            "else have the methods costs and decide of a hereish.Decision"
        )
    return decider  # type: ignore[no-any-return]  # that it is one was checked


def declared_tracker(prediction: Prediction) -> Tracker | None:
    """The prediction, if it is one that learns."""
    if not isinstance(prediction, Tracker):
        return None
    check_declared(prediction, "prediction", "width", "reach")
    return prediction


def own_decision(decider: Decision) -> type[Any] | None:
    """The class of hereish whose `costs` and `decide` the step calls; None for any other."""
    if isinstance(decider, TestThenNoise):  # which was checked to have no others
        return TestThenNoise
    return NoiseFirst if type(decider) is NoiseFirst else None
