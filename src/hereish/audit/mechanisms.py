"""Mechanisms as black boxes: hereish through its batch, and anything that somebody wraps.

To wrap a mechanism, write a function of three arguments:

* `traces`, an array of (runs, reports, 2) latitudes and longitudes: as many runs of one trace;
* `at_s`, the Unix seconds of the reports, which are public;
* `rng`, a fresh `numpy.random.Generator`, for mechanisms without a randomness of their own.

It returns what is released: an array of the same shape, with NaN where nothing is. Runs are
independent of each other, the reports of one run need not be. A mechanism that books what its
releases cost returns `ReleasedRuns` instead, and is held to these costs too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from hereish.audit.pair_audit import ReleasedRuns
from hereish.core.batch import sanitize
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import Draws
from hereish.core.types import Bools, Floats, Ints
from hereish.errors import ParameterError, PartError

NOTHING, UNTESTED, EASY, HARD = range(4)
BlackBox = Callable[[Floats, Floats, np.random.Generator], "ArrayLike | ReleasedRuns"]


@dataclass(frozen=True)
class PlannedRuns(ReleasedRuns):
    """What hereish releases, with the public numbers of its plans."""

    eps_test: Floats
    eps_noise: Floats
    threshold: Floats


def run_batch(
    mechanism: PredictiveMechanism, traces: Floats, at_s: Floats, draws: Draws | None = None
) -> PlannedRuns:
    """`hereish.sanitize`, with one lane per run. Draws are secure unless they are given."""
    runs, steps, dim = traces.shape
    offsets = np.arange(0, runs * steps + 1, steps)
    out = sanitize(mechanism, traces.reshape(-1, dim), np.tile(at_s, runs), offsets, draws=draws)
    kind = np.where(np.isfinite(out.threshold), EASY, UNTESTED)
    kind = np.where(out.released, np.where(out.hard, HARD, kind), NOTHING)
    columns = (out.cost, out.eps_test, out.eps_noise, out.threshold)
    cost, eps_test, eps_noise, threshold = (column.reshape(runs, steps) for column in columns)
    return PlannedRuns(
        out.value.reshape(traces.shape),
        kind.reshape(runs, steps),
        cost,
        eps_test,
        eps_noise,
        threshold,
    )


def run_black_box(
    mechanism: BlackBox, traces: Floats, at_s: Floats, rng: np.random.Generator
) -> ReleasedRuns:
    """What a wrapped mechanism releases, checked to be what it must return."""
    try:
        # A copy: one that changes what it is given must not change what the next one is given.
        released = mechanism(traces.copy(), at_s.copy(), rng)
    except (Exception, SystemExit) as error:  # one that exits must not look like an audit
        raise PartError(f"the mechanism failed: {type(error).__name__}: {error}") from error
    booked = released if isinstance(released, ReleasedRuns) else None
    value = _as_floats(released.value if isinstance(released, ReleasedRuns) else released)
    if value.shape != traces.shape:
        raise PartError(
            f"the mechanism must return an array of the shape of the traces, {traces.shape}, "
            f"found {value.shape}"
        )
    gone = np.asarray(np.isnan(value).any(axis=2))
    if not np.isfinite(value[~gone]).all():
        raise PartError("the mechanism must return finite numbers, and NaN for nothing")
    value = np.where(gone[:, :, None], np.nan, value)
    if booked is None:
        return ReleasedRuns(value, _kinds(value, gone), np.full(gone.shape, np.nan))
    for name, column in (("kind", booked.kind), ("cost", booked.cost)):
        if np.shape(column) != gone.shape:
            raise PartError(
                f"the mechanism's {name} must have the shape {gone.shape}, found {np.shape(column)}"
            )
    if not np.isin(booked.kind, (NOTHING, UNTESTED, EASY, HARD)).all():
        raise PartError(f"the mechanism's kinds must be whole numbers from 0 to {HARD}")
    if not (booked.cost >= 0.0).all():
        raise PartError("the mechanism's costs must be numbers from 0")
    return ReleasedRuns(value, booked.kind.astype(np.int64), _as_floats(booked.cost))


def load_mechanism(name: str) -> BlackBox:
    """The function of `module:function`, also of a module in the current folder."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise ParameterError(
            f"a mechanism is given as module:function, such as mynoise:planar, found {name!r}"
        )
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise ParameterError(
            f"cannot import the module of {name!r} ({error}): run the command in the folder of "
            "the module, or install it"
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever the module does
        raise ParameterError(
            f"the module of {name!r} fails when it is imported: {type(error).__name__}: {error}"
        ) from None
    finally:
        sys.path.remove(here)
    found = loaded.__dict__.get(function)
    if not callable(found):
        raise ParameterError(f"the module {module} has no function {function!r}")
    mechanism: BlackBox = found
    return mechanism


def _as_floats(values: ArrayLike) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise PartError("the mechanism must return an array of numbers") from None


def _kinds(value: Floats, gone: Bools) -> Ints:
    """Kinds that an observer sees: nothing, the same place again, or another one."""
    again = np.zeros(value.shape[:2], dtype=np.bool_)
    again[:, 1:] = (value[:, 1:] == value[:, :-1]).all(axis=2)
    return np.asarray(np.where(gone, NOTHING, np.where(again, EASY, HARD)), dtype=np.int64)
