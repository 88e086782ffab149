"""The clients of a gateway: `Client`, and `AsyncClient` with the same methods to await.

    with Client("https://gateway.example", token) as gateway:
        report = gateway.report((lat, lon))

The true place goes to the gateway and nowhere else; what comes back is public. Each report has an
id that it keeps however often it is sent, so one that is sent again is paid for once. What can go
wrong is a `GatewayError` (responses.py).

The exchange is written once, as generators that yield requests and waits. Two small loops carry
them out, one per client.
"""

from __future__ import annotations

import os
import random
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Generator, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

try:
    import anyio  # comes with httpx
    import httpx
except ImportError as missing:
    raise ImportError("the client needs more: pip install 'hereish[client]'") from missing

from hereish.client import requests
from hereish.client.positions import POSITION, PositionStore
from hereish.client.responses import (
    RETRY_STATUSES,
    AnswerError,
    Budget,
    ClientReport,
    GatewayError,
    GatewayResponse,
    PastRelease,
    UnavailableError,
    error_of_status,
    parse_body,
    parse_budget,
    parse_error,
    parse_page,
    parse_report,
)
from hereish.core.privacy import positive
from hereish.errors import ParameterError

Result = TypeVar("Result")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 8.0
# A longer Retry-After is not waited for, but raised.
_LONGEST_WAIT_S = 60.0
_RANDOM = random.SystemRandom()
# httpx raises others than its own errors at a response with a broken redirection.
_HTTPX_ERRORS = (httpx.RequestError, httpx.InvalidURL, ValueError)


class _Request(NamedTuple):
    method: str
    url: str
    params: dict[str, str] | None = None
    json: dict[str, Any] | None = None
    headers: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"_Request({self.method} {self.url})"  # the body may hold the true place


class _Wait(NamedTuple):
    seconds: float


class _Failure(NamedTuple):
    error: str
    retryable: bool


_Outcome: TypeAlias = GatewayResponse | _Failure | None
_Flow: TypeAlias = Generator[_Request | _Wait, _Outcome, Result]


class _BaseClient(ABC):
    """What both clients share: settings, and the exchange with the gateway."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout_s: float = 10.0,
        retries: int = 5,
        insecure: bool = False,
        position_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """`timeout_s` is the longest silence in each try; with 5 retries there are up to 6.

        http:// is refused except to this machine, since everybody on the way could read the token
        and the true place; `insecure=True` allows it.

        Each response says how far the gateway's ledger has come, and the highest such position is
        sent with each request, so that a ledger that was set back is noticed. With
        `position_file` it outlives this client; several clients may share the file.
        """
        base = requests.check_url(url, insecure)
        if not (isinstance(token, str) and re.fullmatch(r"[!-~]+", token)):
            raise ParameterError("token must be visible ASCII without spaces, found another")
        self.url = str(base)
        self._token = token
        self._retries = requests.check_whole_number("retries", retries, 0)
        self._positions = PositionStore(f"{base} {token}", position_file)
        self._connect(
            base_url=base,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=positive("timeout_s", timeout_s),
            # A redirection could lead the place elsewhere, and so could a proxy without TLS.
            follow_redirects=False,
            trust_env=base.scheme == "https",
        )

    @abstractmethod
    def _connect(self, **settings: Any) -> None:
        """Make the client of httpx; it sends nothing yet."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _report(
        self, place: tuple[float, float], at: datetime | None, report_id: str | None
    ) -> _Flow[ClientReport]:
        lat, lon = requests.check_place(place)
        made_at = requests.to_utc_text("at", datetime.now(UTC) if at is None else at)
        # Once, before the first try.
        name = str(uuid.uuid4()) if report_id is None else requests.check_report_id(report_id)
        report = {"lat": lat, "lon": lon, "at": made_at, "id": name}
        body = yield from self._exchange(_Request("POST", "v1/report", json=report), name)
        return parse_body(body, parse_report, name)

    def _budget(self) -> _Flow[Budget]:
        body = yield from self._exchange(_Request("GET", "v1/budget"))
        return parse_body(body, parse_budget)

    def _page(
        self, before: datetime | None, size: int
    ) -> _Flow[tuple[list[PastRelease], datetime | None]]:
        params = {"limit": str(requests.check_whole_number("page_size", size, 1))}
        if before is not None:
            params["before"] = requests.to_utc_text("before", before)
        body = yield from self._exchange(_Request("GET", "v1/history", params))
        past, following = parse_body(body, parse_page)
        if following is not None and before is not None and following >= before:
            raise AnswerError("the pages of the gateway's history do not go back in time")
        return past, following

    def _exchange(self, request: _Request, report_id: str | None = None) -> _Flow[bytes]:
        """Send a request unchanged until there is a response or the tries run out."""
        tries = 0
        while True:
            outcome = yield request._replace(headers=self._positions.header())
            tries += 1
            if isinstance(outcome, GatewayResponse) and outcome.status == 200:
                self._positions.keep(outcome.position)
                return outcome.body
            wait_s = _backoff_s(outcome, tries)
            if wait_s is None or tries > self._retries:
                raise self._make_error(outcome, tries, report_id)
            yield _Wait(wait_s)

    def _make_error(self, outcome: _Outcome, tries: int, report_id: str | None) -> GatewayError:
        count = f"{tries} tries" if tries > 1 else "1 try"
        if not isinstance(outcome, GatewayResponse):
            error = outcome.error if outcome else "nothing"
            message = f"no answer from the gateway after {count}; the last one ended in {error}"
            return UnavailableError(message, report_id=report_id)
        kind, message = error_of_status(outcome.status)
        detail = parse_error(outcome.body)
        if detail and detail.isprintable():
            # Gateways do not repeat what they were sent. Something on the way might.
            detail = re.sub(r"\d+[.,]\d+", "…", detail.replace(self._token, "…"))[:300]
            message = f"{message}: {detail}"
        return kind(
            f"{message} (status {outcome.status}, {count})",
            status=outcome.status,
            report_id=report_id,
            retry_after_s=outcome.wait_s,
        )


class Client(_BaseClient):
    """A synchronous client. Safe to share between threads. Close it, or use `with`."""

    def _connect(self, **settings: Any) -> None:
        self._http = httpx.Client(**settings)

    def report(
        self,
        place: tuple[float, float],
        at: datetime | None = None,
        *,
        report_id: str | None = None,
    ) -> ClientReport:
        """Report a true place (latitude and longitude in degrees), now or `at` a time.

        A report that may have to be sent again later, after an error or by another process, needs
        an id and a time of your own: the same id is the same report, and is paid for once.
        """
        return self._run(self._report(place, at, report_id))

    def budget(self) -> Budget:
        """What is spent and what is left."""
        return self._run(self._budget())

    def history(
        self, *, before: datetime | None = None, page_size: int = 100
    ) -> Iterator[PastRelease]:
        """Earlier releases, newest first; pages are fetched as they are needed."""
        more = True
        while more:
            past, before = self._run(self._page(before, page_size))
            yield from past
            more = before is not None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: _Flow[Result]) -> Result:
        outcome: _Outcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as done:
                result: Result = done.value
                return result
            if isinstance(step, _Wait):
                time.sleep(step.seconds)
                outcome = None
            else:
                outcome = self._send(step)

    def _send(self, request: _Request) -> _Outcome:
        try:
            return _to_response(self._http.request(**request._asdict()))
        except _HTTPX_ERRORS as error:
            return _to_failure(error)


class AsyncClient(_BaseClient):
    """An asynchronous client. Close it with `aclose`, or use `async with`."""

    def _connect(self, **settings: Any) -> None:
        self._http = httpx.AsyncClient(**settings)

    async def report(
        self,
        place: tuple[float, float],
        at: datetime | None = None,
        *,
        report_id: str | None = None,
    ) -> ClientReport:
        """As `Client.report`."""
        return await self._run(self._report(place, at, report_id))

    async def budget(self) -> Budget:
        """As `Client.budget`."""
        return await self._run(self._budget())

    async def history(
        self, *, before: datetime | None = None, page_size: int = 100
    ) -> AsyncIterator[PastRelease]:
        """As `Client.history`, with `async for`."""
        more = True
        while more:
            past, before = await self._run(self._page(before, page_size))
            for release in past:
                yield release
            more = before is not None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, flow: _Flow[Result]) -> Result:
        outcome: _Outcome = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as done:
                result: Result = done.value
                return result
            if isinstance(step, _Wait):
                await anyio.sleep(step.seconds)
                outcome = None
            else:
                outcome = await self._send(step)

    async def _send(self, request: _Request) -> _Outcome:
        try:
            return _to_response(await self._http.request(**request._asdict()))
        except _HTTPX_ERRORS as error:
            return _to_failure(error)


def _to_response(response: httpx.Response) -> GatewayResponse:
    headers = response.headers
    retry_after, position = headers.get("Retry-After"), headers.get(POSITION)
    return GatewayResponse(response.status_code, retry_after, response.content, position)


def _to_failure(error: Exception) -> _Failure:
    """An error of httpx by its name alone: it carries the request, which has the true place."""
    permanent = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
    retryable = isinstance(error, httpx.TransportError) and not isinstance(error, permanent)
    return _Failure(type(error).__name__, retryable)


def _backoff_s(outcome: _Outcome, tries: int) -> float | None:
    """How long to wait before the next try; None if there should be none."""
    wait_s = None
    if isinstance(outcome, GatewayResponse):
        wait_s = outcome.wait_s
        if outcome.status not in RETRY_STATUSES:
            return None
        if wait_s is not None and wait_s > _LONGEST_WAIT_S:
            return None
    elif outcome is None or not outcome.retryable:
        return None
    # With jitter, so that clients that were refused together do not come back together.
    if wait_s is not None:
        return wait_s + _FIRST_PAUSE_S * _RANDOM.random()
    most_s = min(_FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10), _LONGEST_PAUSE_S)
    return most_s * _RANDOM.uniform(0.5, 1.0)
