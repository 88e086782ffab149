"""The bodies of requests and responses, as the OpenAPI schema has them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from hereish.core.types import Kind


def _require_iso(value: object) -> object:
    """Only a date and a time in ISO 8601: pydantic would also accept a date alone, and a text of
    digits as Unix time, in seconds or milliseconds as it guesses.
    """
    if not isinstance(value, str) or not _ISO.match(value):
        raise ValueError("not a date and time")
    return value


_ISO = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:", re.ASCII)
IsoTime = Annotated[datetime, BeforeValidator(_require_iso)]


class ErrorBody(BaseModel):
    """What went wrong. The message repeats nothing of the request."""

    error: str


class ReportRequestBody(BaseModel):
    """Where a device is. It is used once, in the mechanism, and stored nowhere."""

    lat: float = Field(
        ge=-90, le=90, allow_inf_nan=False, strict=True, description="Degrees, WGS84."
    )
    lon: float = Field(
        ge=-180, le=180, allow_inf_nan=False, strict=True, description="Degrees, WGS84."
    )
    at: IsoTime | Annotated[float, Field(strict=True)] | None = Field(
        default=None,
        description="ISO 8601 with a time zone, or Unix seconds. Up to five minutes ahead. "
        "Without it the time is now, by the gateway's clock.",
    )
    id: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="The id of this report: the same id is the same report, and is paid for once.",
    )


class ReportResponseBody(BaseModel):
    """The release. Without a place (kind none) nothing was released: the budget is exhausted, or
    there is no release for that time.
    """

    lat: float | None
    lon: float | None
    at: str
    kind: Kind
    cost: float
    spent: float
    remaining: float
    window: str
    eps_test: float
    eps_noise: float
    threshold_m: float | None
    accuracy_m: float | None
    noise_first: bool = Field(description="The noise was drawn first, and the test looked at it.")
    moves_noise: float = Field(
        description="How far fresh noise was moved at most, in multiples of 1 / eps_noise."
    )
    full: str | None = Field(
        description="Where nothing was released because a budget is exhausted: which one."
    )


class ForecastBody(BaseModel):
    """When the budget of the current window is expected to be spent, for a report per interval.

    An end that is null does not come before the window is over. From public data alone: made-up
    people go on with what is left.
    """

    window_ends: str | None = Field(description="Null where one budget is for ever.")
    looked_until: str = Field(
        description="The end of the window, or sooner if there are many reports until then."
    )
    lasts_share: float | None = Field(
        description="The share of made-up days on which it lasts; null if that is not known."
    )
    ends_early: str | None = Field(description="One day in ten ends sooner.")
    ends_typical: str | None
    ends_late: str | None = Field(description="One day in ten lasts longer.")


class LimitBody(BaseModel):
    """What is spent and what is left of a further budget, such as a month's."""

    window: str
    spent: float
    remaining: float
    total: float


class SecondPromiseBody(BaseModel):
    """What the reports of a window lose together by (epsilon, delta)-differential privacy, beside
    the first promise and never in place of it.
    """

    level: float = Field(description="Of all reports that the window can have, within the radius.")
    level_so_far: float = Field(description="Of those that it has had.")
    delta: float
    statement: str = Field(description="A sentence that states it.")


class BudgetBody(BaseModel):
    """What is spent and what is left of the current window's privacy budget."""

    user: str
    device: str
    spent: float
    remaining: float
    total: float
    window: str
    reports: int
    exhausted: bool
    limits: list[LimitBody] = Field(
        description="Budgets of longer windows, within which all of this stays; mostly none."
    )
    forecast: ForecastBody | None = Field(description="Null where nothing is left.")
    guarantee: str
    second_promise: SecondPromiseBody | None = Field(
        description="Null where only the guarantee is promised: costs that follow from outcomes, "
        "jobs that pay from the same budget, or a window that a restore has closed."
    )
    policy: str = Field(description="How the budget is spent, in words.")
    interval_s: float
    time_zone: str
    on_exhausted: str
    policy_version: int
    policy_changes: bool = Field(description="Another policy applies from a later window on.")


class HistoryItem(BaseModel):
    """One release."""

    lat: float
    lon: float
    at: str
    kind: Kind
    cost: float
    accuracy_m: float
    window: str
    device: str


class HistoryBody(BaseModel):
    """Releases, newest first; `next` is the value of `before` for the next page."""

    releases: list[HistoryItem]
    next: str | None


class DeviceUsage(BaseModel):
    """How many points a device sent today."""

    device: str
    points_today: int


class DevicesBody(BaseModel):
    """The devices of a user that sent points today."""

    day: str
    devices: list[DeviceUsage]
