"""A client of the gateway: `Client`, and `AsyncClient` with the same methods to await."""

from hereish.client.client import AsyncClient, Client
from hereish.client.responses import (
    AnswerError,
    Budget,
    BudgetLimit,
    BudgetSecondPromise,
    ClientReport,
    GatewayError,
    PastRelease,
    RefusedError,
    TokenError,
    UnavailableError,
)

__all__ = [
    "AnswerError",
    "AsyncClient",
    "Budget",
    "BudgetLimit",
    "BudgetSecondPromise",
    "Client",
    "ClientReport",
    "GatewayError",
    "PastRelease",
    "RefusedError",
    "TokenError",
    "UnavailableError",
]
