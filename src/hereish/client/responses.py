"""The responses of a gateway: reports, budgets and history, or an error.

    GatewayError               (a HereishError)
    ├── TokenError         the token is not accepted
    ├── RefusedError       the gateway refuses what was sent
    ├── UnavailableError   no connection, or too busy, after all retries
    └── AnswerError        a response that no gateway would give

Their messages hold neither the token nor a place, and they carry no request and no cause.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

from hereish.core.types import Kind
from hereish.errors import HereishError

Result = TypeVar("Result")
# Worth a retry, besides lost connections: a body that came too slowly, too many requests, and
# servers that are not there.
RETRY_STATUSES = (408, 429, 502, 503, 504)


class GatewayError(HereishError):
    """The root of the tree above.

    `status` is the HTTP status if there was a response. `report_id` is that of the report, if it
    was one: sent again with the same id, place and time it is not paid for twice. `retry_after_s`
    is how long the gateway asks to wait, if it does.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        report_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.report_id = report_id
        self.retry_after_s = retry_after_s


class TokenError(GatewayError):
    """The gateway does not accept the token."""


class RefusedError(GatewayError):
    """The gateway refuses what was sent; sending it again will not help."""


class UnavailableError(GatewayError):
    """The gateway could not be reached, or had no time, after all retries."""


class AnswerError(GatewayError):
    """Something answered, but not as a gateway does. A wrong address, or a newer gateway?"""


@dataclass(frozen=True, slots=True)
class ClientReport:
    """One release of the gateway. All of it is public.

    `kind` is "none" and `value` is None if nothing was released: the budget is exhausted, or
    there is no release yet.
    """

    value: tuple[float, float] | None
    kind: Kind
    cost: float
    at: datetime
    window: str  # which reports share the budget that this one was paid from
    spent: float
    remaining: float
    eps_test: float  # paid for the test, 0 if there was none
    eps_noise: float  # what noise cost if it was hard, 0 if none could be drawn
    threshold: float  # in metres; ±inf if there was no test
    noise_first: bool = False  # the noise was drawn first, and the test looked at it
    moves_noise: float = 0.0  # how far fresh noise was moved at most, in multiples of 1 / eps_noise
    full: str | None = None  # where a budget is exhausted: what it covers

    @property
    def released(self) -> bool:
        """Whether there is a place."""
        return self.value is not None

    @property
    def lat(self) -> float | None:
        """The released latitude."""
        return self.value[0] if self.value else None

    @property
    def lon(self) -> float | None:
        """The released longitude."""
        return self.value[1] if self.value else None


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """What is spent and what is left of a further budget, such as a month's."""

    window: str
    spent: float
    remaining: float
    total: float


@dataclass(frozen=True, slots=True)
class BudgetSecondPromise:
    """What the reports of a window lose together: (level, delta)-differential privacy."""

    level: float  # of all reports that the window can have, within the radius of the guarantee
    level_so_far: float  # of those that it has had
    delta: float
    statement: str


@dataclass(frozen=True, slots=True)
class Budget:
    """What is spent and what is left of the present window."""

    user: str
    device: str
    spent: float
    remaining: float
    total: float
    window: str
    guarantee: str
    exhausted: bool
    limits: tuple[BudgetLimit, ...] = ()  # budgets of longer windows, within which it stays
    second_promise: BudgetSecondPromise | None = None  # beside the guarantee; None: that alone


@dataclass(frozen=True, slots=True)
class PastRelease:
    """An earlier release, as the gateway's history has it."""

    value: tuple[float, float] | None
    at: datetime
    kind: Kind
    cost: float
    window: str
    device: str


class GatewayResponse(NamedTuple):
    """An HTTP response, as far as it is read."""

    status: int
    retry_after: str | None
    body: bytes
    position: str | None = None  # how far the ledger has come

    @property
    def wait_s(self) -> float | None:
        """Retry-After, seconds or a date; None if it is absent or neither."""
        text = (self.retry_after or "").strip()
        if re.fullmatch(r"\d{1,9}", text):
            return float(text)
        try:
            until = parsedate_to_datetime(text)
            return max(0.0, (until - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError):  # TypeError: a date without a time zone
            return None


def error_of_status(status: int) -> tuple[type[GatewayError], str]:
    """The error for a status other than 200, and its message."""
    if status in (401, 403):
        return TokenError, "the gateway does not accept the token"
    if status in RETRY_STATUSES or status >= 500:
        return UnavailableError, "the gateway is not available"
    if status >= 400:
        return RefusedError, "the gateway refuses this"
    return AnswerError, "this is not how a gateway answers"


class JsonFields:
    """The fields of a JSON object by type; ValueError with the name of one that does not fit."""

    def __init__(self, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise ValueError("its object")
        self._fields: dict[str, Any] = fields

    def raw(self, name: str) -> Any:
        return self._fields.get(name)

    def number(self, name: str) -> float:
        value = self._fields.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(name)
        if not abs(value) < math.inf:
            raise ValueError(name)
        return float(value)

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise ValueError(name)
        return value

    def flag(self, name: str) -> bool:
        value = self._fields.get(name)
        if not isinstance(value, bool):
            raise ValueError(name)
        return value

    def time(self, name: str) -> datetime:
        try:
            at = datetime.fromisoformat(self.text(name))
        except ValueError:
            raise ValueError(name) from None
        if at.utcoffset() is None:
            raise ValueError(name)
        return at

    def kind(self) -> Kind:
        try:
            return Kind(self.text("kind"))
        except ValueError:
            raise ValueError("kind") from None

    def place(self) -> tuple[float, float] | None:
        if self.raw("lat") is None and self.raw("lon") is None:
            return None
        return self.number("lat"), self.number("lon")


def parse_body(
    body: bytes, parse: Callable[[JsonFields], Result], report_id: str | None = None
) -> Result:
    """The body of a response, or AnswerError without what was in it."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    field = ""
    try:
        return parse(JsonFields(fields))
    except (ValueError, OverflowError) as error:
        field = str(error)
    raise AnswerError(
        f"the answer is not a gateway's: {field} is missing or broken", report_id=report_id
    )


def parse_error(body: bytes) -> str | None:
    """The message of an error, if there is one."""
    try:
        return JsonFields(json.loads(body)).text("error")
    except (ValueError, RecursionError):
        return None


def parse_report(fields: JsonFields) -> ClientReport:
    """The body of a report; ValueError names a field that is wrong."""
    value, kind = fields.place(), fields.kind()
    if (value is None) != (kind is Kind.NONE):
        raise ValueError("lat or lon")
    untested = -math.inf if kind is Kind.HARD else math.inf  # as a hereish.Report has it
    return ClientReport(
        value=value,
        kind=kind,
        cost=fields.number("cost"),
        at=fields.time("at"),
        window=fields.text("window"),
        spent=fields.number("spent"),
        remaining=fields.number("remaining"),
        eps_test=fields.number("eps_test"),
        eps_noise=fields.number("eps_noise"),
        threshold=untested if fields.raw("threshold_m") is None else fields.number("threshold_m"),
        # Gateways from before presets do not say so: there it is always false, and nothing.
        noise_first=fields.raw("noise_first") is not None and fields.flag("noise_first"),
        moves_noise=0.0 if fields.raw("moves_noise") is None else fields.number("moves_noise"),
        full=None if fields.raw("full") is None else fields.text("full"),
    )


def parse_budget(fields: JsonFields) -> Budget:
    """The body of a budget; ValueError names a field that is wrong."""
    return Budget(
        user=fields.text("user"),
        device=fields.text("device"),
        spent=fields.number("spent"),
        remaining=fields.number("remaining"),
        total=fields.number("total"),
        window=fields.text("window"),
        guarantee=fields.text("guarantee"),
        exhausted=fields.flag("exhausted"),
        limits=_limits(fields.raw("limits")),
        second_promise=_second_promise(fields.raw("second_promise")),
    )


def _second_promise(row: object) -> BudgetSecondPromise | None:
    if row is None:  # there is none, or it is a gateway from before they were
        return None
    fields = JsonFields(row)
    return BudgetSecondPromise(
        level=fields.number("level"),
        level_so_far=fields.number("level_so_far"),
        delta=fields.number("delta"),
        statement=fields.text("statement"),
    )


def _limits(rows: object) -> tuple[BudgetLimit, ...]:
    if rows is None:  # a gateway from before there were any
        return ()
    if not isinstance(rows, list):
        raise ValueError("limits")
    return tuple(
        BudgetLimit(
            window=row.text("window"),
            spent=row.number("spent"),
            remaining=row.number("remaining"),
            total=row.number("total"),
        )
        for row in map(JsonFields, rows)
    )


def parse_page(fields: JsonFields) -> tuple[list[PastRelease], datetime | None]:
    """The releases of a page, and `before` of the next page."""
    rows = fields.raw("releases")
    if not isinstance(rows, list):
        raise ValueError("releases")
    past = [
        PastRelease(
            value=row.place(),
            at=row.time("at"),
            kind=row.kind(),
            cost=row.number("cost"),
            window=row.text("window"),
            device=row.text("device"),
        )
        for row in map(JsonFields, rows)
    ]
    return past, None if fields.raw("next") is None else fields.time("next")
