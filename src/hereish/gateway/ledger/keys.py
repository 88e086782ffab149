"""The key, which is kept outside the ledger, and what it encrypts and hashes."""

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


class LedgerKeyError(HereishError):
    """The key is missing, unsafe, or not the one of this ledger."""


class Keys:
    """One key per purpose, derived from a master key."""

    def __init__(self, master: bytes) -> None:
        if len(master) != _BYTES:
            raise ParameterError(f"the key must be {_BYTES} random bytes, found {len(master)}")
        self._ids = _derive(master, b"ids")
        self._names = _derive(master, b"names")
        self._box = ChaCha20Poly1305(_derive(master, b"seal"))
        self._positions = ChaCha20Poly1305(_derive(master, b"positions"))
        self.check = _derive(master, b"check")[:16]
        """Tells whether a ledger was made with this key, and nothing else about it."""

    def report_key(self, user_id: int, device: str, report_id: str) -> bytes:
        """A keyed hash of the id that a device gave to a report."""
        name = device.encode()
        content = struct.pack("<qq", user_id, len(name)) + name + report_id.encode()
        return _keyed_hash(self._ids, content)

    def name_key(self, user: str) -> bytes:
        """A keyed hash of the name of a user who was deleted."""
        return _keyed_hash(self._names, user.encode())

    def seal(self, secret: str, context: str) -> bytes:
        """Encrypted for the database; opens only with the same context."""
        return _seal(self._box, secret.encode(), context.encode())

    def open(self, sealed: bytes, context: str) -> str:
        return _open(self._box, sealed, context.encode()).decode()

    def seal_position(self, content: bytes, context: bytes) -> bytes:
        """Encrypted for clients, with a key of its own: there are many."""
        return _seal(self._positions, content, context)

    def open_position(self, sealed: bytes, context: bytes) -> bytes:
        return _open(self._positions, sealed, context)

    def __repr__(self) -> str:
        return "Keys(…)"


def load_keys(path: Path, *, create: bool) -> Keys:
    """The key of the environment (HEREISH_KEY), or of the file; a new file if there is none."""
    encoded = os.environ.get("HEREISH_KEY")
    if encoded is not None:
        return Keys(_decode(encoded, "HEREISH_KEY"))
    if create and not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, base64.b64encode(os.urandom(_BYTES)) + b"\n")
    try:
        text = path.read_text("ascii")
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise LedgerKeyError(
            f"there is no key at {path}; give the one of this ledger with --key-file (--ledger-key "
            "of 'hereish sanitize') or HEREISH_KEY"
        ) from None
    except UnicodeDecodeError:
        text, mode = "", 0
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        remedy = f"chmod 600 {shlex.quote(str(path))}"
        raise LedgerKeyError(f"everybody on this machine can read the key: {remedy}")
    return Keys(_decode(text, str(path)))


def _write(path: Path, content: bytes) -> None:
    """Atomically; if another process was first, its key stays."""
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


def _decode(text: str, where: str) -> bytes:
    expected = f"{where} must be {_BYTES} bytes in base64 (openssl rand -base64 {_BYTES})"
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise LedgerKeyError(expected) from None
    if len(key) != _BYTES:
        raise LedgerKeyError(f"{expected}, found {len(key)} bytes")
    return key


def _seal(box: ChaCha20Poly1305, content: bytes, context: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + box.encrypt(nonce, content, context)


def _open(box: ChaCha20Poly1305, sealed: bytes, context: bytes) -> bytes:
    """Compared in constant time; the error does not say what is wrong with it."""
    try:
        return box.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        raise LedgerKeyError("a sealed value cannot be opened: it is damaged or moved") from None


def _derive(master: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(key=master, person=b"hereish", salt=purpose, digest_size=32).digest()


def _keyed_hash(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, digest_size=16).digest()
