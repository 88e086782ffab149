"""Names of users and traces: which spellings are equal, how they are ordered, and file names."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from decimal import Decimal
from urllib.parse import quote

import numpy as np

NameKey = tuple[bool, int, str]
_EXACT = 2.0**53  # up to here a float is one whole number and no other
# A decimal number, after compatibility forms such as full-width digits have become plain ones.
_NUMBER = re.compile(r"([+-]?)(0*)(0|[1-9][0-9]*)(\.[0-9]*)?(e[+-]?[0-9]+)?", re.IGNORECASE)
_LONGEST_FILE_NAME = 200  # file systems allow 255 bytes, and an extension follows
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
# Categories of invisible characters: controls, and formats such as zero-width spaces.
_INVISIBLE = ("Cc", "Cf")
# What Unicode's property Default_Ignorable_Code_Point adds to those.
_IGNORED = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2065])
) | frozenset(map(chr, [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE1000)]))


def canonical_name(identity: object) -> str:
    """The name by which a user or trace has its budget: equivalent spellings give the same one.

    Two names for one user would mean two budgets. Equivalent are: 1, 1.0, "1", " 1", "1.0", "+1",
    "1e0" and full-width digits; texts that differ only in invisible characters, in the amount of
    white space or in the ways in which Unicode writes a letter (NFKC). Different are: capital and
    small letters, numbers with and without leading zeros ("7", "007"), and letters that look alike.
    When in doubt they are equivalent: users who share a budget are protected, one who has two is
    not.
    """
    text = repr(float(identity)) if isinstance(identity, (float, np.floating)) else str(identity)
    if not (text.isascii() and text.isalpha()):
        text = _visible(text)
        number = _NUMBER.fullmatch(text)
        if number is not None:
            text = _decimal(number)
    return text


def _visible(text: str) -> str:
    """Without invisible characters, and with one way to write each letter."""
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFKC", text)
        text = "".join(" " if c.isspace() else c for c in text if c.isspace() or _is_visible(c))
        text = unicodedata.normalize("NFKC", text)  # what was apart may now be one letter
    return " ".join(text.split())


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) not in _INVISIBLE and character not in _IGNORED


def _decimal(number: re.Match[str]) -> str:
    """The shortest spelling of a number. Leading zeros stay: ids with them are other ids."""
    sign, zeros, integer, fraction, exponent = number.groups()
    if fraction or exponent:
        text = integer + (fraction or "") + (exponent or "")
        value = float(text)
        if not value < np.inf:
            return number.group()
        if not value.is_integer():
            integer = repr(value)
        elif value < _EXACT or int((exponent or "e0")[1:]) > 0:  # the latter as floats are written
            integer = str(int(value))
        else:
            integer = str(int(Decimal(text)))
    minus = "-" if sign == "-" and (zeros or integer != "0") else ""
    return minus + zeros + integer


def name_key(name: str) -> NameKey:
    """The sort key of a name: whole numbers by their size, then texts by their characters."""
    if _WHOLE.fullmatch(name):
        return (False, int(name), "")
    return (True, 0, name)


def safe_file_name(identity: object) -> str:
    """An id as a file name: it stays in its folder, and different ids have different names."""
    name = quote(str(identity), safe="", errors="backslashreplace")
    if name.startswith("."):  # hidden, or a folder that is there already
        name = "%2E" + name[1:]
    if len(name) > _LONGEST_FILE_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: _LONGEST_FILE_NAME - 17]}%{digest}"
    return name or "%"
