"""Parts with other settings have other fingerprints, however they hide them; else none."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable
from datetime import timedelta, tzinfo
from typing import Any

import numpy as np
import pytest

import hereish
from hereish.core.fingerprint import fingerprint
from hereish.core.spaces import Coordinate


def plain(scale: float) -> float:
    return scale


def scaled(scale: float) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*given: float) -> float:
            return float(function(*given) * scale)

        return wrapper

    return decorate


def local_base(scale: float) -> Any:
    class Base(hereish.Plane):
        def noise(self, x: Any, eps: Any, u: Any) -> Any:
            return super().noise(x, eps * scale, u)

    class Part(Base):
        pass

    return Part()


def private_method(scale: float) -> Any:
    class Part(hereish.LaplaceTest):
        def _passes(self, *given: Any) -> Any:
            return scale

    return Part()


def special_method(scale: float) -> Any:
    class Part:
        def __getitem__(self, item: int) -> float:
            return scale

    return Part()


def made_class(scale: float) -> Any:
    return type("Part", (), {"__call__": lambda self: scale})()


@dataclasses.dataclass(frozen=True)
class Computed:
    scale: dataclasses.InitVar[float]
    kept: float = dataclasses.field(init=False, repr=False)

    def __post_init__(self, scale: float) -> None:
        object.__setattr__(self, "kept", scale)


class Mangled:
    __slots__ = ("__scale",)

    def __init__(self, scale: float) -> None:
        self.__scale = scale


class Slotted:
    __slots__ = ("scale",)


@dataclasses.dataclass(frozen=True)
class OverSlots(Slotted):
    number: int = 0


def over_slots(scale: float) -> Any:
    part = OverSlots()
    object.__setattr__(part, "scale", scale)
    return part


@dataclasses.dataclass(frozen=True)
class Cached:
    number: int = 0

    @functools.cached_property
    def scale(self) -> float:
        return 1.0


def cached(scale: float) -> Any:
    part = Cached()
    vars(part)["scale"] = scale
    return part


def attribute_and_variable(scale: float) -> Any:
    number = 5.0

    def part() -> float:
        return number

    vars(part)["number"] = scale
    return part


SHIFT = 1.0


def of_a_global(scale: float) -> Any:
    global SHIFT
    SHIFT = scale
    return fingerprint(lambda: SHIFT)


class Zone(tzinfo):
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __repr__(self) -> str:
        return "Zone()"

    def utcoffset(self, _: Any) -> timedelta:
        return timedelta(0)

    dst = utcoffset

    def tzname(self, _: Any) -> str:
        return "zone"


class Quiet(enum.Enum):
    ONE = 1.0
    TWO = 2.0

    def __repr__(self) -> str:
        return "Quiet"


HIDDEN: dict[str, Callable[[float], Any]] = {
    "constants in another place": lambda scale: (
        (lambda: (1.0, 2.0)) if scale == 1.0 else (lambda: (2.0, 1.0))
    ),
    "decorators": lambda scale: scaled(scale)(plain),
    "local base": local_base,
    "private method": private_method,
    "special method": special_method,
    "made class": made_class,
    "computed field": Computed,
    "mangled slot": Mangled,
    "slots of a base": over_slots,
    "cached property": cached,
    "bound method of a dict": lambda scale: {"scale": scale}.get,
    "bound method of a set": lambda scale: frozenset([scale]).__contains__,
    "bound method of an array": lambda scale: np.array([scale]).item,
    "attribute and variable": attribute_and_variable,
    "global": of_a_global,
    "names in an array": lambda scale: np.zeros(2, dtype=[("a" if scale == 1.0 else "b", "f8")]),
    "silent enumeration": Quiet,
}


@pytest.mark.parametrize("make", HIDDEN.values(), ids=HIDDEN.keys())
def test_a_part_shows_its_settings_wherever_they_are(make: Callable[[float], Any]) -> None:
    one, again, other = fingerprint(make(1.0)), fingerprint(make(1.0)), fingerprint(make(2.0))
    assert one == again, "the same part is the same part"
    assert one != other


@pytest.mark.parametrize(
    "part",
    [
        np.random.default_rng(1),
        np.random.default_rng(1).random,
        np.frompyfunc(math.sin, 1, 1),
        Zone(1.0),
        iter([1]),
        np.array([object()]),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_cannot_be_shown_is_refused(part: Any) -> None:
    with pytest.raises(hereish.PartError, match="cannot be shown"):
        fingerprint(part)


def test_what_parts_are_made_of_can_be_shown() -> None:
    class Space:
        coordinates = (Coordinate("metres", -1.0, 1.0),)

        def distance(self, a: Any, b: Any) -> Any:
            return np.hypot(a, b)

    assert "low=-1.0" in fingerprint(Space())
    assert fingerprint(hereish.Plan(1.0, 2.0, 3.0)).startswith("Plan(eps_test=1.0")


def test_whole_numbers_are_the_same_mechanism() -> None:
    """Or what the command, whose numbers have fractions, released would be released again."""
    narrow: Any = np.float32(100.0)
    whole, others = hereish.Privacy(level=2, radius_m=100), hereish.Privacy(2.0, narrow)
    assert repr(whole) == repr(others)
    assert hereish.fixed_utility(whole, 3000).number == hereish.fixed_utility(others, 3e3).number
