"""Tokens: displayed once, stored as a digest, compared in constant time."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import NamedTuple

_ID_BYTES, _SECRET_BYTES = 8, 32
# The id finds the row; the secret proves it. Letters and digits alone, so that it fits a URL.
_FORMAT = re.compile(r"hereish_([0-9a-f]{16})_([a-z2-7]{52})", re.ASCII)


class PresentedToken(NamedTuple):
    """A token as a client presents it: its id, and the digest of all of it."""

    id: str
    digest: bytes

    def __repr__(self) -> str:
        return "PresentedToken(…)"


def generate_token() -> str:
    """A new random token."""
    secret = base64.b32encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=").lower()
    return f"hereish_{secrets.token_hex(_ID_BYTES)}_{secret}"


def parse_token(text: str) -> PresentedToken | None:
    """Id and digest of a token; None if the text does not have the format of one."""
    match = _FORMAT.fullmatch(text)
    # The secret has 256 random bits: a fast digest is as good as a slow one.
    digest = hashlib.sha256(text.encode()).digest()
    return None if match is None else PresentedToken(match.group(1), digest)
