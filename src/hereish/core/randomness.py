"""Where uniforms come from: secure by default, seeded on request, or derived from a key.

A uniform is made of 64 random bits and is never 0 and never 1: an odd multiple of 2**-53, or below
2**-20 an odd multiple of 2**-65, so that the far tails of the noise are smooth too. Proof of the
keyed ones: randomness.proof.md.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias, final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from hereish.core.types import Floats, Ints, PerLane, take_rows
from hereish.errors import ParameterError

if TYPE_CHECKING:
    from hereish.core.mechanism import PredictiveMechanism
    from hereish.core.step import Prepared

Words: TypeAlias = NDArray[np.uint64]  # two for each lane: a block of AES
# Columns from one to another, for these lanes or for all of them.
DrawColumns: TypeAlias = Callable[[int, int, Ints | None], Floats]

_KEY_BYTES = 32
_BUFFER_UNIFORMS = 512
_PIECE = 1 << 15
_ZEROS = bytes(8 * _PIECE)
_SMALL_WORD = np.uint64(1 << 44)  # of 64 bits: a uniform below 2**-20


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
    """52 of the 64 bits as the mantissa of a number in [1, 2), moved to (0, 1). In place.

    Small numbers take all 64 bits: logarithms of them are the tails of the noise.
    """
    lanes = (bits < _SMALL_WORD).nonzero() if bits.min() < _SMALL_WORD else None
    words = None if lanes is None else bits[lanes]
    bits >>= np.uint64(12)
    bits |= np.uint64(0x3FF0000000000000)
    uniforms: Floats = bits.view("<f8")
    uniforms -= 1.0 - 2.0**-53
    if words is not None:
        uniforms[lanes] = (words.astype(np.float64) + 0.5) * 2.0**-64
    return uniforms


_forks = 0


def _note_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class SecureDraws(threading.local):
    """Keys from the operating system, each expanded once by a stream cipher and then forgotten.

    Every thread has buffers of its own, a forked child throws its parent's away, and whoever draws
    takes a buffer away before looking at it: a signal handler that draws in the middle of a draw
    finds none and begins a new one. So no number is handed out twice. Used numbers are wiped.
    """

    private = True

    def __init__(self) -> None:
        # Each with the process that filled it. More than one only after such an interruption.
        self._buffers: list[tuple[tuple[int, int], Floats]] = []

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        if out is not None or count > _BUFFER_UNIFORMS // 4:
            return _read(_stream(os.urandom(_KEY_BYTES)), count, out)
        process = (os.getpid(), _forks)
        try:
            owner, unused = self._buffers.pop()  # one step of the interpreter: nothing in between
        except IndexError:
            owner, unused = process, np.empty(0)
        if count > len(unused) or owner != process:
            unused = _read(_stream(os.urandom(_KEY_BYTES)), _BUFFER_UNIFORMS)
        drawn = unused[:count].copy()
        unused[:count] = 0.0
        self._buffers.append((process, unused[count:]))
        return drawn

    def __repr__(self) -> str:
        return "SecureDraws()"


SECURE = SecureDraws()


class SecureStream:
    """Secure draws of one block of a batch: one key from the operating system, which nobody keeps.

    It must be used by one thread of one process only.
    """

    def __init__(self) -> None:
        self._stream = _stream(os.urandom(_KEY_BYTES))

    def uniforms(self, count: int, out: Floats | None = None) -> Floats:
        return _read(self._stream, count, out)


@final
class LateUniforms:
    """The uniforms of a step, each column drawn when it is asked for, and only once.

    Most lanes of a batch need those of the test and none of the noise. The step checks `shape`,
    that of a row for each lane.
    """

    def __init__(self, shape: tuple[int, int], draw: DrawColumns) -> None:
        self.shape = shape
        self._draw, self._done = draw, 0

    def columns(self, first: int, end: int, lanes: Ints | None) -> Floats:
        """Those of the next columns, for these lanes or for all of them."""
        count = 0 if lanes is None else len(lanes)
        if not self._done == first < end <= self.shape[1] or count > self.shape[0]:
            raise ValueError("uniforms are drawn once, column by column")
        self._done = end
        return self._draw(first, end, lanes)


def late_from_stream(
    shape: tuple[int, int], stream: SecureStream, empty: Callable[[str, int], Floats]
) -> LateUniforms:
    """Those that come next, whichever lanes they are for."""

    def draw(first: int, end: int, lanes: Ints | None) -> Floats:
        count = shape[0] if lanes is None else len(lanes)
        drawn = empty(f"uniforms from {first}", (end - first) * count)
        return stream.uniforms(drawn.size, out=drawn).reshape(end - first, count).T

    return LateUniforms(shape, draw)


def columns_of(u: Floats | LateUniforms, first: int, end: int, lanes: Ints | None = None) -> Floats:
    """Some columns of the uniforms of a step for these lanes, or for all of them."""
    if isinstance(u, LateUniforms):
        return u.columns(first, end, lanes)
    some = u[:, first:end]
    return some if lanes is None else take_rows(some, lanes)


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
    mechanism, the window, the step, the time, the true value, and all that was decided from public
    data: guess, costs and threshold. Two releases of one secret with the same uniforms and
    different costs would give it away. Whoever has the key can undo the noise; keep it like the
    secrets themselves.
    """

    private = True

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) < 16:
            raise ParameterError("key must be bytes, at least 16 of them, from os.urandom")
        derived = hashlib.blake2b(key, digest_size=_KEY_BYTES, person=b"hereish draws 2").digest()
        self._cipher = Cipher(algorithms.AES(derived), modes.ECB())  # noqa: S305  # the chaining is ours

    def begin(self, m: PredictiveMechanism, users: Sequence[str]) -> Words:
        """What `for_reports` needs of the user of each trace; the same for all its reports.

        Raises PartError for a mechanism with a part that cannot show its settings: a sibling with
        others could not be told from it.
        """
        # Window, step and time; guess, costs and threshold.
        return self._begin(users, m.dim, 3 + m.dim, m.fingerprint.encode())

    def for_reports(
        self, m: PredictiveMechanism, begun: Words, prepared: Prepared, x: Floats
    ) -> Floats:
        """The uniforms of the next step of each lane, whose public part is `prepared`."""
        return self._columns(self._report_tags(begun, prepared, x), 0, m.uniforms)

    def late_for_reports(
        self, m: PredictiveMechanism, begun: Words, prepared: Prepared, x: Floats
    ) -> LateUniforms:
        """The same, each pair of columns derived for the lanes that need it."""
        tags = self._report_tags(begun, prepared, x)

        def draw(first: int, end: int, lanes: Ints | None) -> Floats:
            return self._columns(tags if lanes is None else tags[lanes], first, end)

        return LateUniforms((len(tags), m.uniforms), draw)

    def derive(
        self,
        users: Sequence[str],
        windows: Ints,
        steps: Ints,
        at_s: Floats,
        values: Floats,
        count: int,
        decided: Floats | None = None,
        mechanism: bytes = b"",
    ) -> Floats:
        """`count` uniforms for each report; `decided` has a row of public numbers for each."""
        others = np.empty((len(at_s), 0)) if decided is None else decided
        begun = self._begin(users, values.shape[1], others.shape[1], mechanism)
        tags = self._tags(begun, (windows, steps), (at_s, *values.T, *others.T))
        return self._columns(tags, 0, count)

    def _begin(self, users: Sequence[str], values: int, others: int, mechanism: bytes) -> Words:
        """The state of the CBC-MAC after the words that all reports of a trace begin with."""
        blocks = np.empty((3, len(users), 2), dtype="<u8")
        blocks[0] = values, others  # how many words follow: no message is the start of another
        # A digest has one length, so where it ends and a name begins is plain.
        about, sha256 = hashlib.sha256(mechanism).digest(), hashlib.sha256
        digests = b"".join([sha256(about + name).digest() for name in map(_utf8, users)])
        blocks[1:] = np.frombuffer(digests, "<u8").reshape(-1, 2, 2).swapaxes(0, 1)
        return _chained(self._encrypt(), np.zeros_like(blocks[0]), blocks)  # [R1]

    def _report_tags(self, begun: Words, prepared: Prepared, x: Floats) -> Words:
        """The state of the CBC-MAC after all but the last block of each lane's next report."""
        run = prepared.run
        decided = (prepared.eps_test, prepared.eps_noise, prepared.threshold)
        numbers = (prepared.at_s, *x.T, *prepared.guess.T, *decided)
        return self._tags(begun, (run.window, run.reports), numbers)

    def _tags(self, begun: Words, counts: Sequence[Ints], numbers: Sequence[PerLane]) -> Words:
        """The state of the CBC-MAC after all but the last block of each message."""
        blocks = np.empty((1 + -(-len(numbers) // 2), len(begun), 2), dtype="<u8")
        for i, whole in enumerate(counts):
            blocks[0, :, i] = whole.view("<u8")
        floats = blocks[1:].view("<f8")
        # The same number in one spelling: no -0.0, and one NaN (where there is no guess).
        for i, number in enumerate(numbers):
            np.add(number, 0.0, out=floats[i // 2, :, i % 2])
        if len(numbers) % 2:
            floats[-1, :, 1] = 0.0
        with np.errstate(all="ignore"):
            total = floats.sum()  # NaN also of infinities: then it is looked for
        if total != total:
            floats[floats != floats] = np.nan
        return _chained(self._encrypt(), begun, blocks)  # [R2]

    def _columns(self, tags: Words, first: int, end: int) -> Floats:
        """Columns of the uniforms for each lane; two are made of a block."""
        pairs = range(first // 2, -(-end // 2))
        last = np.zeros((len(pairs), 1, 2), dtype="<u8")
        last[:, 0, 0] = pairs
        sealed = self._encrypt()(tags ^ last)  # [R3]
        bits = np.ascontiguousarray(sealed.transpose(0, 2, 1)).reshape(-1, len(tags))
        return _as_uniforms(bits[first - 2 * pairs.start :][: end - first]).T

    def _encrypt(self) -> Callable[[Words], Words]:
        """AES of each block by itself."""
        cipher = self._cipher.encryptor()  # a new one: threads must not share it

        def encrypt(blocks: Words) -> Words:
            if not blocks.size:  # no lanes: a view of nothing cannot be cast
                return blocks
            sealed = np.empty(blocks.nbytes + 15, dtype=np.uint8)  # room that the cipher asks for
            cipher.update_into(blocks.data.cast("B"), sealed.data)
            return sealed[: blocks.nbytes].view("<u8").reshape(blocks.shape)

        return encrypt

    def __reduce__(self) -> NoReturn:
        # An engine that ships its tasks would write the key to its disks with them.
        raise TypeError(
            "KeyedDraws hold a secret key and cannot be pickled; read it where it is used"
        )

    def __repr__(self) -> str:
        return "KeyedDraws(…)"


def _chained(encrypt: Callable[[Words], Words], state: Words, blocks: Words) -> Words:
    """CBC: each block is added to the state, which is then encrypted. All lanes at once."""
    for block in blocks:
        state = encrypt(state ^ block)  # [R4]
    return state


def _utf8(user: str) -> bytes:
    if not isinstance(user, str):
        raise ParameterError(f"a user must be a text, found {type(user).__name__}")
    return user.encode(errors="surrogatepass")
