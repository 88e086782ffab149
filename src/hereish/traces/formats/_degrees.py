"""Coordinates as texts: decimal points and commas, degrees and minutes, letters for the side."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from hereish.core.types import Floats

Axis = Literal["lat", "lon"]
CoordinateUnit = Literal["degrees", "e7", "e6", "semicircles"]
COORDINATE_UNITS: tuple[CoordinateUnit, ...] = get_args(CoordinateUnit)
DEGREES_PER: dict[str, float] = {
    "degrees": 1.0,
    "e7": 1e-7,
    "e6": 1e-6,
    "semicircles": 180.0 / 2**31,
}
_SIDES: dict[Axis, tuple[str, str]] = {"lat": ("N", "S"), "lon": ("E", "W")}
_LETTER = "[NSEWnsew]"
_PARTS = re.compile(
    rf"(?P<before>{_LETTER})?\s*(?P<sign>[+-])?\s*(?P<degrees>\d+(?:[.,]\d*)?|[.,]\d+)\s*[°ºd*]?"
    r"(?:\s*(?P<minutes>\d+(?:[.,]\d*)?)\s*['′’]?"
    r"(?:\s*(?P<seconds>\d+(?:[.,]\d*)?)\s*(?:[\"″”]|''|′′)?)?)?"
    rf"\s*(?P<after>{_LETTER})?"
)
_COMMA = re.compile(r"[+-]?\d*,\d+", re.ASCII)
_MARKED = re.compile(rf"[°º'′’\"″”]|{_LETTER}")
_LONGEST = 64  # characters; no coordinate is longer


def parse_number(value: object) -> float | None:
    """A finite number, or a text that is a decimal one; None for anything else.

    Python would take more for a number: 1_000, digits of other scripts, True.
    """
    if isinstance(value, str):
        if "_" in value or not value.isascii():
            return None
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def parse_degrees(value: object, axis: Axis, unit: str | None = None) -> float | None:
    """The degrees north or east of a number or a text; None if it is no coordinate of that axis.

    Read are 60.17, 60,17, 60.17N, N 60 10.2, 60°10'12"N and the like. A sign and a letter that
    contradict each other are not.
    """
    plain = parse_number(value)
    if plain is None and isinstance(value, str):
        value = value.replace("\N{MINUS SIGN}", "-")
        plain = parse_number(value)
    if plain is not None:
        degrees = plain if unit is None else float(in_degrees(np.array([plain]), unit)[0])
        return None if math.isnan(degrees) else degrees
    if not isinstance(value, str) or len(value) > _LONGEST:
        return None
    text = value.strip()
    if _COMMA.fullmatch(text):
        return parse_number(text.replace(",", "."))
    match = _PARTS.fullmatch(text)
    if match is None or not _MARKED.search(text):
        return None
    return _join(match.groupdict(), axis)


def _join(parts: dict[str, str | None], axis: Axis) -> float | None:
    sides = [side.upper() for side in (parts["before"], parts["after"]) if side is not None]
    if len(sides) > 1 or any(side not in _SIDES[axis] for side in sides):
        return None
    if sides and parts["sign"] is not None:
        return None
    value, size = 0.0, 1.0
    names = ("degrees", "minutes", "seconds")
    for name, finer in zip(names, (*names[1:], ""), strict=True):
        text = parts[name]
        if text is None:
            break
        if finer and parts[finer] is not None and not text.isdigit():
            return None  # only the last part has decimals
        number = float(text.replace(",", "."))
        if name != "degrees" and number >= 60.0:
            return None
        value += number / size
        size *= 60.0
    return -value if parts["sign"] == "-" or sides == [_SIDES[axis][1]] else value


def parse_all_degrees(
    texts: Sequence[str], axis: Axis, sides: Sequence[str] | None = None
) -> Floats:
    """Each text's degrees, NaN where it is none; `sides` are columns of N and S, or E and W."""
    values = _plain_numbers(texts)
    if values is None:
        read = (parse_degrees(text, axis) for text in texts)
        values = np.array([math.nan if one is None else one for one in read], dtype=np.float64)
    return values if sides is None else with_sides(values, sides, axis)


def in_degrees(values: Floats, unit: str | None) -> Floats:
    """Numbers of a unit in degrees; among semicircles, small ones are degrees already.

    NaN for those that are no counts, but look like degrees: with decimals, and at most 180.
    """
    if unit is None or unit == "degrees":
        return values
    scaled, small = values * DEGREES_PER[unit], np.abs(values) <= 180.0
    if unit == "semicircles":
        return np.where(small, values, scaled)
    return np.where(small & (values % 1.0 != 0.0), np.nan, scaled)


def _plain_numbers(texts: Sequence[str]) -> Floats | None:
    together = "".join(texts)
    if "_" in together or not together.isascii():
        return None
    with contextlib.suppress(ValueError):
        values = np.fromiter(map(float, texts), np.float64, len(texts))
        values[~np.isfinite(values)] = np.nan
        return values
    return None


def with_sides(values: Floats, sides: Sequence[str], axis: Axis) -> Floats:
    """Numbers whose side is in a column of its own; one with a sign contradicts a letter."""
    positive, negative = _SIDES[axis]
    letters = np.array([side.strip().upper()[:1] for side in sides])
    known = (letters == positive) | (letters == negative)
    signed = np.where(letters == negative, -values, values)
    wrong = ~known | ((values < 0) & (letters == positive))
    # A number with its sign, and the letter beside it that says the same.
    signed = np.where((values < 0) & (letters == negative), values, signed)
    return np.where(wrong, np.nan, signed)
