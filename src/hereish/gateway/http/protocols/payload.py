"""What a protocol makes of a request: fixes, why others cannot be used, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeVar

from hereish.errors import HereishError
from hereish.gateway.ledger.models import Fix

MAX_POINTS = 1000
"""Points per request: the largest batch that can be set in Overland."""
UnusableReason = Literal["body", "place", "time", "ambiguous", "key", "size"]
"""Why a point cannot be used, for the metrics: a fixed list, so that nothing sent gets there."""
_Item = TypeVar("_Item")


class InvalidRequestError(HereishError):
    """A request that cannot be used. Its message never repeats what was sent: it may be a place."""

    def __init__(self, message: str, reason: UnusableReason = "body") -> None:
        super().__init__(message)
        self.reason: UnusableReason = reason


class TooManyPointsError(InvalidRequestError):
    """More points than a request may have."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "size")


class ParsedPoints(NamedTuple):
    """The points of a request: the fixes that can be used, and why others cannot."""

    fixes: list[Fix]
    unusable: list[UnusableReason]


def read_each(items: Iterable[_Item], read: Callable[[_Item], Fix | None]) -> ParsedPoints:
    """Read the points of a batch one by one; None is no point. A bad one does not spoil the rest:
    the app would send a batch that was refused because of it for ever.
    """
    points = ParsedPoints([], [])
    for item in items:
        try:
            fix = read(item)
        except InvalidRequestError as error:
            points.unusable.append(error.reason)
        else:
            if fix is not None:
                points.fixes.append(fix)
    return points
