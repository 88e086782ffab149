"""The HTTP status of every error: one table, for the middleware, the routes and the API's schema.

The body of an error is `{"error": message}`, and repeats nothing of the request.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fastapi.exceptions import RequestValidationError

from hereish.errors import (
    BudgetExhaustedError,
    HereishError,
    ParameterError,
    PartError,
    PointError,
    StateError,
)
from hereish.gateway.forwarding.delivery import DeliveryError
from hereish.gateway.http.protocols.payload import InvalidRequestError, TooManyPointsError
from hereish.gateway.http.rate_limit import RateLimitError
from hereish.gateway.http.schemas import ErrorBody
from hereish.gateway.ledger.database import LedgerUnavailableError
from hereish.gateway.ledger.high_water_mark import LedgerRestoredError
from hereish.gateway.ledger.keys import LedgerKeyError
from hereish.gateway.ledger.queries import MixedBackupError, TokenRefusedError


class InvalidFieldError(HereishError):
    """A JSON field or a query parameter that is missing, of the wrong type or out of range."""


class BodyTooLargeError(Exception):
    """The body has more bytes than it may."""


class BodyTimeoutError(Exception):
    """The body did not arrive in time."""


class ErrorStatus(NamedTuple):
    """The HTTP status of an error, and how it is reported to the client."""

    status: int
    message: str | None = None  # instead of the error's own, which is not for the client
    retry_after_s: int | None = None

    @property
    def title(self) -> str:
        return TITLES[self.status]


TITLES = {
    400: "The request cannot be read, or cannot be decrypted.",
    401: "The token is missing or not valid.",
    404: "Not found.",
    405: "The method is not allowed here.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many points.",
    422: "A field is missing, of the wrong type or out of range.",
    429: "Too many points with this token.",
    500: "A defect of the gateway.",
    503: "The ledger cannot be used just now; nothing was released.",
}
_DEFECT = ErrorStatus(500, "a defect of the gateway; it may be sent again")
_NO_LEDGER = ErrorStatus(503, "the ledger cannot be used just now; nothing was released", 5)
ERROR_STATUS: dict[type[Exception], ErrorStatus] = {
    InvalidRequestError: ErrorStatus(400),
    TooManyPointsError: ErrorStatus(413),
    InvalidFieldError: ErrorStatus(422),
    RequestValidationError: ErrorStatus(422, "a parameter of the address cannot be used"),
    TokenRefusedError: ErrorStatus(401),
    RateLimitError: ErrorStatus(429),
    BodyTooLargeError: ErrorStatus(413, "the body is too large"),
    BodyTimeoutError: ErrorStatus(408, "the body did not arrive in time"),
    LedgerUnavailableError: _NO_LEDGER,
    LedgerRestoredError: _NO_LEDGER,
    MixedBackupError: _NO_LEDGER,
    LedgerKeyError: _NO_LEDGER,
    # Nothing that a client sends should raise these.
    HereishError: _DEFECT,
    BudgetExhaustedError: _DEFECT,
    DeliveryError: _DEFECT,
    ParameterError: _DEFECT,
    PartError: _DEFECT,
    PointError: _DEFECT,
    StateError: _DEFECT,
    Exception: _DEFECT,
}
ROUTING_ERRORS = {404: "not found", 405: "method not allowed"}
"""The messages of the errors of routing, which have their status in them."""


def status_of(error: Exception) -> ErrorStatus:
    """The entry of an error's class, or of the nearest class above it."""
    return next(ERROR_STATUS[cls] for cls in type(error).__mro__ if cls in ERROR_STATUS)


def _describe(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorBody, "description": TITLES[status]} for status in statuses}


# The errors of routes, for the API's schema.
V1_ERRORS = _describe(400, 401, 408, 413, 422, 429, 503)
PHONE_ERRORS = _describe(401, 408, 413, 429, 503)
OWNTRACKS_ERRORS = PHONE_ERRORS | _describe(400)
