"""Looks for a true place in whatever a server wrote or said, in every spelling we can think of.

What was released is public and may lie close to the true place, so it has to be told apart. Digits
alone cannot do that: 3 km of noise put a release into the same 11 m of latitude as the truth, and
so give it the same four decimals, once in 200 times. So the releases are read from the ledger, and
a number that is one of them is not taken for a leak. What remains are numbers that have nothing to
do with places, and they match only by chance:

- A number in digits must have the integer part of the coordinate and at least three of its
  decimals. TRUE is such that no time of day has its integer parts (they are above 60), and neither
  have the thresholds, radii and costs of a policy of 3 km (in degrees, metres or 1/m they are
  below 1 or above 200).
- Eight bytes of a float64 (forty of them) in less than 10 MB, were they all random: 1e-10.
- Integers and float32, four bytes each, count only as a pair, so eight bytes again.
- Nine digits in hexadecimal names and hashes, of which there are below 1e5 places: 1e-6 times the
  chance that no hexadecimal digit stands on either side, 1 in 500. Longer texts are rarer still.

Together that is far below 1e-6 a run. The price: a leak of exactly the digits of a release is not
seen, which happens once in some thousand runs for a leak of five decimals and never for one of
six or more, since releases have five.
"""

from __future__ import annotations

import base64
import re
import sqlite3
import struct
from collections.abc import Collection, Iterator
from itertools import permutations
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    """Degrees."""

    lat: float
    lon: float


TRUE = Place(67.3819264, 163.7419258)
_DECIMALS = 7  # that TRUE has
_FEWEST = 3
_NUMBERS = [re.compile(rb"(?<!\d)(\d{1,3})" + sign + rb"(\d{3,})") for sign in (rb"\.", rb",")]


def leaks(haystack: bytes, released: Collection[float] = (), place: Place = TRUE) -> list[str]:
    """How the place is spelled in there, and where; empty if it is not."""
    found = list(_digits(haystack, released, place))
    for name, spelled in spellings(place, released).items():
        at = haystack.find(spelled)
        if at >= 0:
            found.append(f"{name}: {_around(haystack, at)}")
    for name, pattern in _integers(place):
        match = pattern.search(haystack)
        if match:
            found.append(f"{name}: {_around(haystack, match.start())}")
    return found


def _digits(haystack: bytes, released: Collection[float], place: Place) -> Iterator[str]:
    """Decimal numbers that are a coordinate, rounded or cut to three decimals or more."""
    for numbers in _NUMBERS:
        for match in numbers.finditer(haystack):
            whole, decimals = match.groups()
            value = float(whole + b"." + decimals)
            near = 10.0 ** -min(len(decimals), _DECIMALS) * (1 + 1e-6)
            if value not in released and any(abs(value - true) <= near for true in place):
                yield f"{len(decimals)} decimals: {_around(haystack, match.start())}"


def spellings(place: Place = TRUE, released: Collection[float] = ()) -> dict[str, bytes]:
    """Fixed bytes that each give the place away, by what they are called."""
    found: dict[str, bytes] = {}
    for axis, true in place._asdict().items():
        for digits in range(_FEWEST, _DECIMALS + 1):
            cut = int(true * 10**digits) / 10**digits
            for how, value in (("rounded", round(true, digits)), ("cut", cut)):
                if value not in released:
                    for order, sign in (("little", "<"), ("big", ">")):
                        name = f"{axis}, float64 {order} endian, {how} to {digits}"
                        found[name] = struct.pack(f"{sign}d", value)
        text = f"{true:.{_DECIMALS}f}"
        found[f"{axis}, scientific"] = f"{true:.8e}".partition("e")[0].encode()
        # The mantissa, as float.hex and the bytes in big-endian hexadecimal both have it.
        found[f"{axis}, hexadecimal"] = struct.pack(">d", true).hex()[3:].rstrip("0").encode()
        found[f"{axis}, hexadecimal little endian"] = struct.pack("<d", true).hex().encode()
        for order in ("le", "be"):
            found[f"{axis}, UTF-16 {order}"] = text[:-3].encode(f"utf-16-{order}")
        for shift in range(3):
            # The middle of what base64 makes of it, whatever comes before and after it.
            coded = base64.b64encode(bytes(shift) + text.encode())
            found[f"{axis}, base64 at {shift}"] = coded[4 if shift else 0 : len(coded) // 4 * 4 - 4]
    for one, two in permutations(place):
        for sign in "<>":
            name = f"{'swapped ' if one == place.lon else ''}pair {sign}"
            found[f"{name} float32"] = struct.pack(f"{sign}ff", one, two)
            for scale in (10**6, 10**7):
                whole = [round(value * scale) for value in (one, two)]
                found[f"{name} int32 of {scale}"] = struct.pack(f"{sign}ii", *whole)
                found[f"{name} int64 of {scale}"] = struct.pack(f"{sign}qq", *whole)
    return found


def _integers(place: Place) -> Iterator[tuple[str, re.Pattern[bytes]]]:
    for axis, true in place._asdict().items():
        for scale in (10**6, 10**7):
            digits = str(round(true * scale)).encode()
            yield f"{axis} times {scale}", re.compile(rb"(?<![0-9a-f])" + digits + rb"(?![0-9a-f])")


def _around(haystack: bytes, at: int) -> str:
    return repr(haystack[max(0, at - 60) : at + 60])


def released_in(database: Path) -> frozenset[float]:
    """All coordinates that were released, as the ledger has them."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT lat, lon FROM entries UNION ALL SELECT lat, lon FROM outbox"
        )
        return frozenset(value for row in rows for value in row if value is not None)
    finally:
        connection.close()


def leaks_in_files(
    folder: Path, released: Collection[float], place: Place = TRUE
) -> dict[str, list[str]]:
    """Of every file below a folder, those with a leak."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    found = {path.name: leaks(path.read_bytes(), released, place) for path in files}
    return {name: where for name, where in found.items() if where}
