"""What is known in public of how a group, or somebody's own releases, move: a table of places."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from hereish.core.types import Floats
from hereish.errors import ParameterError

PARTS = 8  # of the day, of three hours each, on weekdays and at weekends
BINS = 2 * PARTS
MOST_PLACES = 256
MOST = 1e300  # sums of such numbers are finite


@dataclass(frozen=True, eq=False, repr=False)
class MobilityModel:
    """Places, the hours spent at each by time of day and weekday, and the moves between them.

    Learnt from public traces of a group (`hereish.mobility.learn_model`) or taken from what a
    session has learnt of its own releases (`Mobility.model_of`). `exactness` is one divided by the
    square of how far, in metres, somebody at a place is from where it is said to be; `hours` has a
    column per part of the day, of weekdays and then of weekends; `moves` a row per place left and
    a column per place gone to.

    Guarantee: none of its own; whoever makes it answers for it being public.
    """

    name: str
    places: Floats  # (n, dim)
    exactness: Floats  # (n,) per square metre
    hours: Floats  # (n, BINS)
    moves: Floats  # (n, n)
    licence: str = ""
    digest: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        for text in (self.name, self.licence):
            if not isinstance(text, str) or not (text.isprintable() or not text):
                raise ParameterError("name and licence of a model must be one line of text each")
        if not self.name.strip():
            raise ParameterError("a mobility model needs a name of one line, found none")
        arrays = {name: _numbers(name, getattr(self, name)) for name in _ARRAYS}
        places = arrays["places"]
        count = len(places)
        if places.ndim != 2 or not 1 <= count <= MOST_PLACES or places.shape[1] not in (1, 2):
            raise ParameterError(
                f"a mobility model has 1 to {MOST_PLACES} places of one or two coordinates, found "
                f"the shape {places.shape}"
            )
        shapes = {"exactness": (count,), "hours": (count, BINS), "moves": (count, count)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise ParameterError(
                    f"{name} of {count} places must have the shape {shape}, "
                    f"found {arrays[name].shape}"
                )
            if not np.all((arrays[name] >= 0.0) & (arrays[name] <= MOST)):
                raise ParameterError(f"{name} must be numbers from 0")
        if not np.all(arrays["exactness"] > 0.0):
            raise ParameterError("exactness must be above 0")
        text = "\n".join((self.name, self.licence, *(str(a.shape) for a in arrays.values())))
        content = b"".join(a.tobytes() for a in arrays.values())
        digest = hashlib.sha256(text.encode() + b"\0" + content).hexdigest()
        for name, value in (*arrays.items(), ("digest", digest[:16])):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        return f"<MobilityModel {self.name!r}: {len(self)} places, {self.digest}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MobilityModel):
            return NotImplemented
        return self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> Any:  # what is loaded is checked, and read-only, again
        return MobilityModel, tuple(getattr(self, f.name) for f in fields(self) if f.init)


_ARRAYS = ("places", "exactness", "hours", "moves")


def _numbers(name: str, values: object) -> Floats:
    try:
        array: Floats = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise ParameterError(f"{name} of a mobility model must be numbers") from None
    if not np.isfinite(array).all():
        raise ParameterError(f"{name} of a mobility model must be finite")
    array.setflags(write=False)
    return array
