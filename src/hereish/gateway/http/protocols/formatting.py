"""How releases are written: what several formats and answers share."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

from hereish.gateway.ledger.models import LedgerRelease


def to_json(value: object) -> bytes:
    """Compact JSON; NaN and infinity, which JSON lacks, are an error."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def to_iso(at_s: float) -> str:
    """ISO 8601 in UTC, with no more digits than the time has."""
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


def radius_m(release: LedgerRelease) -> int:
    """The noise radius in whole metres: apps take no fractions, and 0 for unknown."""
    return max(1, math.ceil(release.accuracy_m))
