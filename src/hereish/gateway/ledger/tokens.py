"""Tokens: shown once, kept as a digest, compared in constant time."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import NamedTuple

_ID_BYTES, _SECRET_BYTES = 8, 32
# The id finds the row; the secret proves it. Letters and digits alone, so that it fits a URL.
_SHAPE = re.compile(r"hereish_([0-9a-f]{16})_([a-z2-7]{52})", re.ASCII)


class Presented(NamedTuple):
    """A token that somebody shows: which one it claims to be, and the digest of all of it."""

    id: str
    digest: bytes

    def __repr__(self) -> str:
        return "Presented(…)"


def new() -> str:
    """A token that nobody can guess."""
    secret = base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=").lower()
    return f"hereish_{secrets.token_hex(_ID_BYTES)}_{secret}"


def presented(text: str) -> Presented | None:
    """What the text claims; None if it has not even the shape of a token."""
    found = _SHAPE.fullmatch(text)
    # The secret has 256 random bits: a quick digest is as good as a slow one.
    digest = hashlib.sha256(text.encode()).digest()
    return None if found is None else Presented(found.group(1), digest)
