"""The key of keyed draws in a file: it is read where rows are sanitised, and never passed around.

Environment variables and settings of a cluster stand in its logs and web pages in clear; a path
does not tell the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shlex
import stat
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hereish.core.randomness import KeyedDraws
from hereish.errors import ParameterError

_BYTES = 32
_NONCE_BYTES = 12


def write_key_file(path: str | Path) -> None:
    """A new key that only its owner can read; raises if there is a file already."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ParameterError(
            f"{path} is there already: with another key, what was released would be released anew"
        ) from None
    with os.fdopen(handle, "wb") as file:
        file.write(base64.b64encode(os.urandom(_BYTES)) + b"\n")
        os.fsync(file.fileno())


def read_key_file(path: str | Path) -> KeyedDraws:
    """The draws of the key in a file."""
    return KeyedDraws(_read_key(path))


def seal(path: str | Path, content: bytes) -> bytes:
    """Something that only who has the key can read, or could have written."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + _cipher(path).encrypt(nonce, content, None)


def unseal(path: str | Path, sealed: bytes) -> bytes | None:
    """What was sealed with the same key; None if the key was another, or it was changed."""
    try:
        return _cipher(path).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
    except (InvalidTag, ValueError):  # the latter of what is too short
        return None


def _cipher(path: str | Path) -> AESGCM:
    # Derived: what is sealed tells nothing of the key that draws are made of.
    derived = hashlib.blake2b(_read_key(path), digest_size=_BYTES, person=b"hereish sealed 1")
    return AESGCM(derived.digest())


def _read_key(path: str | Path) -> bytes:
    where = Path(path)
    try:
        mode, text = where.stat().st_mode, where.read_bytes()
    except OSError as failure:
        raise ParameterError(
            f"the key file {where} cannot be read ({failure.strerror}): it must be at this path on "
            "every machine that sanitises rows"
        ) from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        remedy = f"chmod 600 {shlex.quote(str(where))}"
        raise ParameterError(f"everybody on this machine can read the key: {remedy}")
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _BYTES:
        raise ParameterError(
            f"{where} must hold {_BYTES} random bytes in base64 (openssl rand -base64 {_BYTES})"
        )
    return key
