"""Tokens of requests: where they are, and whether they may go on to the ledger."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from starlette.requests import Request

from hereish.gateway.http.rate_limit import RateLimitError
from hereish.gateway.http.services import Services, services_of
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.queries import TokenRefusedError
from hereish.gateway.ledger.tokens import PresentedToken

# For the API's schema; FastAPI does not check them itself.
SECURITY_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of 'hereish token new'.",
    },
    "password": {
        "type": "http",
        "scheme": "basic",
        "description": "Any user name, and the token as the password.",
    },
}
BEARER: dict[str, Any] = {"security": [{"token": []}]}
BASIC: dict[str, Any] = {"security": [{"password": []}]}


def admit(request: Request, text: str | None = None) -> tuple[Services, PresentedToken]:
    """The services, and the token of a request: `text`, or that of its Authorization header.

    It has the form of a token and is within its rate; the ledger checks whether it is valid.
    """
    services = services_of(request)
    if text is None:
        text = _read_authorization(request)
    token = tokens.parse_token(text) if text else None
    if token is None:
        raise TokenRefusedError("a token is needed: 'hereish token new' makes one")
    wait_s = services.limiter.wait_s(token.digest)
    if wait_s:
        raise RateLimitError(wait_s)
    return services, token


def _read_authorization(request: Request) -> str | None:
    """The token as Bearer, or as the password of Basic, whose user name is ignored."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    credentials = credentials.strip()
    if scheme.lower() == "bearer":
        return credentials
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None
