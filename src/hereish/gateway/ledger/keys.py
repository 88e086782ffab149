"""The key that stays outside the ledger, and what is made with it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shlex
import stat
import struct
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from hereish.errors import HereishError, ParameterError

_BYTES = 32
_NONCE_BYTES = 12


class KeyTrouble(HereishError):  # noqa: N818  # it says what it is
    """The key is missing, unsafe, or not the one of this ledger."""


class Keys:
    """Keys for each purpose, derived from one."""

    def __init__(self, master: bytes) -> None:
        if len(master) != _BYTES:
            raise ParameterError(f"the key must be {_BYTES} random bytes, found {len(master)}")
        self._ids = _derived(master, b"ids")
        self._names = _derived(master, b"names")
        self._box = ChaCha20Poly1305(_derived(master, b"seal"))
        self._positions = ChaCha20Poly1305(_derived(master, b"positions"))
        self.check = _derived(master, b"check")[:16]
        """Tells whether a ledger was made with this key, and nothing else about it."""

    def named(self, user_id: int, device: str, name: str) -> bytes:
        """Knows a report again by the id that its sender gave it."""
        told = device.encode()
        about = struct.pack("<qq", user_id, len(told)) + told + name.encode()
        return _keyed(self._ids, about)

    def name(self, user: str) -> bytes:
        """Stands for the name of a user who was deleted."""
        return _keyed(self._names, user.encode())

    def seal(self, secret: str, about: str) -> bytes:
        """Encrypted for the database; opens only for the same `about`."""
        return _sealed(self._box, secret.encode(), about.encode())

    def open(self, sealed: bytes, about: str) -> str:
        return _opened(self._box, sealed, about.encode()).decode()

    def seal_position(self, content: bytes, about: bytes) -> bytes:
        """Encrypted for clients, with a key of its own: there are many."""
        return _sealed(self._positions, content, about)

    def open_position(self, sealed: bytes, about: bytes) -> bytes:
        return _opened(self._positions, sealed, about)

    def __repr__(self) -> str:
        return "Keys(…)"


def load(path: Path, *, create: bool) -> Keys:
    """The key of the environment (HEREISH_KEY), or of the file; a new file if there is none."""
    told = os.environ.get("HEREISH_KEY")
    if told is not None:
        return Keys(_decoded(told, "HEREISH_KEY"))
    if create and not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, base64.b64encode(os.urandom(_BYTES)) + b"\n")
    try:
        text = path.read_text("ascii")
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise KeyTrouble(
            f"there is no key at {path}; give the one of this ledger with --key-file or HEREISH_KEY"
        ) from None
    except UnicodeDecodeError:
        text, mode = "", 0
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        remedy = f"chmod 600 {shlex.quote(str(path))}"
        raise KeyTrouble(f"everybody on this machine can read the key: {remedy}")
    return Keys(_decoded(text, str(path)))


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all; if another process was first, its key stays."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _decoded(text: str, where: str) -> bytes:
    expected = f"{where} must be {_BYTES} bytes in base64 (openssl rand -base64 {_BYTES})"
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise KeyTrouble(expected) from None
    if len(key) != _BYTES:
        raise KeyTrouble(f"{expected}, found {len(key)} bytes")
    return key


def _sealed(box: ChaCha20Poly1305, content: bytes, about: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + box.encrypt(nonce, content, about)


def _opened(box: ChaCha20Poly1305, sealed: bytes, about: bytes) -> bytes:
    """Compared in constant time; KeyTrouble says nothing of what is wrong with it."""
    try:
        return box.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        raise KeyTrouble("a sealed value cannot be opened: it is damaged or moved") from None


def _derived(master: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(key=master, person=b"hereish", salt=purpose, digest_size=32).digest()


def _keyed(key: bytes, about: bytes) -> bytes:
    return hashlib.blake2b(about, key=key, digest_size=16).digest()
