"""How far reports lie from the truth. It depends on the true places: for its owner's eyes only."""

from __future__ import annotations

import numpy as np

from hereish.core.types import Floats, Ints

# Distances are counted in bins a thousandth wide, so that a billion of them take no memory.
_EDGES_M = np.geomspace(1e-3, 3e7, 1 + round(np.log(3e10) / np.log1p(1e-3)))
_BINS = len(_EDGES_M) + 1
# Bins that are sent as one, a hundredth wide.
_SENT_AS_ONE = 10
_SENT = -(-_BINS // _SENT_AS_ONE)


class Displacements:
    """Counts distances between what was released and the truth, in little memory."""

    def __init__(self) -> None:
        self._bins: Ints = np.zeros(_BINS, dtype=np.int64)
        self._sum_m = 0.0

    def add(self, distance_m: Floats) -> None:
        """Count some more."""
        self._bins += np.bincount(np.searchsorted(_EDGES_M, distance_m), minlength=_BINS)
        self._sum_m += float(distance_m.sum())

    def include(self, other: Displacements) -> None:
        """Count those of another as well."""
        self._bins += other._bins
        self._sum_m += other._sum_m

    @property
    def count(self) -> int:
        return int(self._bins.sum())

    @property
    def mean_m(self) -> float | None:
        return self._sum_m / self.count if self.count else None

    @property
    def p90_m(self) -> float | None:
        """Nine out of ten are within this distance, rounded up to the end of its bin."""
        if not self.count:
            return None
        return _upper_edge_m(int(np.searchsorted(np.cumsum(self._bins), 0.9 * self.count)))

    def to_bytes(self) -> bytes:
        """As many bytes whatever was counted, in bins a hundredth wide."""
        padded = np.zeros(_SENT * _SENT_AS_ONE, dtype="<i8")
        padded[:_BINS] = self._bins
        sums = padded.reshape(_SENT, _SENT_AS_ONE).sum(axis=1)
        return bytes(np.array(self._sum_m, "<f8").tobytes() + sums.astype("<i8").tobytes())

    @classmethod
    def from_bytes(cls, content: bytes) -> Displacements:
        """Those of `to_bytes`; each distance is rounded up to the end of the wider bin."""
        made = cls()
        made._sum_m = float(np.frombuffer(content, "<f8", 1)[0])
        sums = np.frombuffer(content, "<i8", _SENT, 8)
        last = np.minimum(np.arange(1, _SENT + 1) * _SENT_AS_ONE, _BINS) - 1
        made._bins[last] = sums
        return made


def round_up_m(distance_m: float) -> float:
    """A distance as the counts have it: the upper edge of its bin, a thousandth more at most."""
    return _upper_edge_m(int(np.searchsorted(_EDGES_M, distance_m)))


def _upper_edge_m(bin_: int) -> float:
    return float(_EDGES_M[min(bin_, len(_EDGES_M) - 1)])
