"""The shapes of requests and answers, as the OpenAPI schema shows them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field


def _spelled(told: object) -> object:
    """Only a date and a time in ISO 8601: pydantic would take a text of digits for Unix time, in
    seconds or milliseconds as it guesses, and a date alone.
    """
    if not isinstance(told, str) or not _ISO.match(told):
        raise ValueError("not a date and time")
    return told


_ISO = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:", re.ASCII)
Moment = Annotated[datetime, BeforeValidator(_spelled)]


class Trouble(BaseModel):
    """What went wrong, in words that repeat nothing of the request."""

    error: str


class ReportIn(BaseModel):
    """Where a device is. It is used once, in the mechanism, and kept nowhere."""

    lat: float = Field(
        ge=-90, le=90, allow_inf_nan=False, strict=True, description="Degrees, WGS84."
    )
    lon: float = Field(
        ge=-180, le=180, allow_inf_nan=False, strict=True, description="Degrees, WGS84."
    )
    at: Moment | Annotated[float, Field(strict=True)] | None = Field(
        default=None,
        description="ISO 8601 with a time zone, or Unix seconds. Up to five minutes ahead. "
        "Without it the time is now, by the gateway's clock.",
    )
    id: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Of this report: the same id is the same report, and is paid once.",
    )


class ReportOut(BaseModel):
    """What was released. Without a place (kind none) nothing was: the budget is spent, or nothing
    is known of that time.
    """

    lat: float | None
    lon: float | None
    at: str
    kind: Literal["hard", "easy", "untested", "none"]
    cost: float
    spent: float
    remaining: float
    window: str
    eps_test: float
    eps_noise: float
    threshold_m: float | None
    accuracy_m: float | None


class Budget(BaseModel):
    """Where the budget stands now."""

    user: str
    device: str
    spent: float
    remaining: float
    total: float
    window: str
    reports: int
    exhausted: bool
    guarantee: str
    interval_s: float
    time_zone: str
    on_exhausted: str
    policy_version: int
    policy_changes: bool = Field(description="Another policy waits for a later window.")


class Past(BaseModel):
    """One release."""

    lat: float
    lon: float
    at: str
    kind: Literal["hard", "easy", "untested"]
    cost: float
    accuracy_m: float
    window: str
    device: str


class History(BaseModel):
    """Releases, newest first; `next` is what to give as `before` for those before them."""

    releases: list[Past]
    next: str | None


class DeviceToday(BaseModel):
    """How many points a device sent today."""

    device: str
    points_today: int


class Devices(BaseModel):
    """The devices of a user that sent something today."""

    day: str
    devices: list[DeviceToday]


# How a route is signed in to, for the schema; the desk looks at the token itself.
SCHEMES = {
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


def iso(at_s: float) -> str:
    """A time as it is written in answers: UTC, and no more digits than it has."""
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")


def _answers(*codes: int) -> dict[int | str, dict[str, Any]]:
    said = {
        400: "The request means nothing, or cannot be decrypted.",
        401: "No token, or one that is not taken.",
        408: "The body did not arrive in time.",
        413: "The body is too large, or has too many points.",
        422: "A field is missing, of the wrong type or out of range.",
        429: "Too many points with this token.",
        503: "The ledger cannot be used just now; nothing was released.",
    }
    return {code: {"model": Trouble, "description": said[code]} for code in codes}


ANSWERS = _answers(400, 401, 408, 413, 422, 429, 503)
PHONE_ANSWERS = _answers(401, 408, 413, 429, 503)
OWNTRACKS_ANSWERS = PHONE_ANSWERS | _answers(400)
