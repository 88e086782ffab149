"""Where uniforms come from: secure by default, seeded on request, or derived from a key.

A uniform is an odd multiple of 2**-53: 52 random bits, never 0 and never 1.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from hereish.arrays import Floats, Ints
from hereish.errors import ParameterError
from hereish.run import Run
from hereish.step import in_window

if TYPE_CHECKING:
    from hereish.mechanism import PredictiveMechanism

_KEY_BYTES = 32
_BUFFER_UNIFORMS = 512
_PIECE = 1 << 15
_ZEROS = bytes(8 * _PIECE)


class Draws(Protocol):
    """A source of uniforms."""

    private: bool
    """False if somebody else could draw the same numbers."""

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        """The next `count` uniforms, none ever handed out twice; into `out` if it is given."""
        ...


def _stream(key: bytes) -> CipherContext:
    # AES-256 in counter mode: the stream is the encryption of zeros. A key is used for one stream
    # only, so the counter may start at nought.
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _read(stream: CipherContext, count: int, out: Floats | None = None) -> Floats:
    uniforms = np.empty(count) if out is None else out
    for start in range(0, count, _PIECE):  # in pieces that stay in cache
        bits = uniforms[start : start + _PIECE].view("<u8")
        raw = memoryview(bits.view(np.uint8))  # type: ignore[arg-type]  # arrays are buffers
        stream.update_into(memoryview(_ZEROS)[: len(raw)], raw)
        _as_uniforms(bits)
    return uniforms


def _as_uniforms(bits: NDArray[np.uint64]) -> Floats:
    """52 of the 64 bits as the mantissa of a number in [1, 2), moved to (0, 1). In place."""
    bits >>= np.uint64(12)
    bits |= np.uint64(0x3FF0000000000000)
    uniforms: Floats = bits.view("<f8")
    uniforms -= 1.0 - 2.0**-53
    return uniforms


_forks = 0


def _note_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class SecureDraws(threading.local):
    """Keys from the operating system, each expanded once by a stream cipher and then forgotten.

    Every thread has a buffer of its own, and a forked child throws its parent's away, so no
    number is handed out twice. Used numbers are wiped.
    """

    private = True

    def __init__(self) -> None:
        self._buffer: Floats = np.empty(0)
        self._next = 0
        self._owner = (0, 0)

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        if out is not None or count > _BUFFER_UNIFORMS // 4:
            return _read(_stream(os.urandom(_KEY_BYTES)), count, out)
        owner = (os.getpid(), _forks)
        if self._next + count > len(self._buffer) or owner != self._owner:
            self._buffer = _read(_stream(os.urandom(_KEY_BYTES)), _BUFFER_UNIFORMS)
            self._next, self._owner = 0, owner
        unused = self._buffer[self._next : self._next + count]
        drawn = unused.copy()
        unused[:] = 0.0
        self._next += count
        return drawn

    def __repr__(self) -> str:
        return "SecureDraws()"


SECURE = SecureDraws()


class SeededDraws:
    """The same numbers each time: for experiments and tests. NOT PRIVATE."""

    private = False

    def __init__(self, seed: int, skip: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise ParameterError(f"seed must be a whole number, found {type(seed).__name__}")
        self.seed = int(seed)
        self.drawn = 0
        self._stream = _stream(hashlib.sha256(b"hereish seed %d" % self.seed).digest())
        while self.drawn < skip:
            self.uniforms(min(skip - self.drawn, 1 << 17))

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        self.drawn += count
        return _read(self._stream, count, out)

    def __repr__(self) -> str:
        return f"SeededDraws({self.seed}), NOT PRIVATE"


class KeyedDraws:
    """Uniforms that are a function of a secret key and of the whole identity of a report.

    A report that is computed again (a retry, a replayed request, a Spark task that ran twice)
    gets the same uniforms and so the same release, not a second one. The identity is the user, the
    window, the step, the time and the true value, and besides them the mechanism and the public
    history: two releases of one secret with the same uniforms and different budgets would give
    it away. Whoever has the key can undo the noise; keep it like the secrets themselves.
    """

    private = True

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) < 16:
            raise ParameterError("key must be bytes, at least 16 of them, from os.urandom")
        self._keyed = hashlib.blake2b(
            digest_size=64, key=hashlib.sha512(key).digest(), person=b"hereish report"
        )

    def for_reports(
        self, m: PredictiveMechanism, users: Sequence[str], run: Run, at_s: Floats, x: Floats
    ) -> Floats:
        """The uniforms of the next step of each lane."""
        run = in_window(m, run, at_s)
        lanes = len(at_s)
        history = np.concatenate([field.reshape(lanes, -1) for field in run], axis=1, dtype="<f8")
        history[np.isnan(history)] = np.nan  # NaN has many faces; one is enough
        mechanism = hashlib.sha256(m.fingerprint.encode()).digest()
        return self.derive(users, run.window, run.reports, at_s, x, m.uniforms, history, mechanism)

    def derive(
        self,
        users: Sequence[str],
        windows: Ints,
        steps: Ints,
        at_s: Floats,
        values: Floats,
        count: int,
        history: Floats | None = None,
        mechanism: bytes = b"",
    ) -> Floats:
        """`count` uniforms for each report; `history` has a row for each."""
        widths = [1, 1, 1, values.shape[1], 0 if history is None else history.shape[1]]
        identity = np.empty((len(at_s), 1 + sum(widths)), dtype="<u8")
        identity[:, 0] = (widths[3] << 32) + widths[4]
        identity[:, 1], identity[:, 2] = windows, steps
        floats = identity.view("<f8")
        floats[:, 3], floats[:, 4 : 4 + widths[3]] = at_s, values
        if history is not None:
            floats[:, 4 + widths[3] :] = history
        floats[:, 3:] += 0.0  # -0.0 and 0.0 are the same place
        blocks = -(-count // 8)
        bits = np.empty((len(at_s), blocks * 8), dtype="<u8")
        context = hashlib.sha256(mechanism).digest()
        for lane, (user, row) in enumerate(zip(users, identity, strict=True)):
            # All but the name has a length that is fixed or stands in front: nothing can shift.
            about = context + row.tobytes() + user.encode()
            for block in range(blocks):
                digest = self._keyed.copy()
                digest.update(bytes([block]) + about)
                bits[lane, block * 8 : block * 8 + 8] = np.frombuffer(digest.digest(), "<u8")
        return _as_uniforms(bits[:, :count].copy())

    def __repr__(self) -> str:
        return "KeyedDraws(…)"
