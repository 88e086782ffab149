"""Talks to a gateway: `Client`, and `AsyncClient` with the same methods to await.

    with Client("https://gateway.example", token) as gateway:
        report = gateway.report((lat, lon))

The true place goes to the gateway and nowhere else; what comes back is public. Each report has an
id that it keeps however often it is sent, so one that is sent again is paid for once. What can go
wrong is a `GatewayError` (responses.py).

What is said to a gateway is written once, as generators that yield requests and pauses. Two small
loops carry them out, one for each client.
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
from hereish.client.responses import (
    AGAIN,
    Answer,
    AnswerError,
    Budget,
    ClientReport,
    GatewayError,
    PastRelease,
    RefusedError,
    TokenError,
    UnavailableError,
    as_budget,
    as_page,
    as_report,
    meaning,
    read,
    said,
)
from hereish.core.privacy import positive
from hereish.errors import ParameterError

__all__ = [
    "AnswerError",
    "AsyncClient",
    "Budget",
    "Client",
    "ClientReport",
    "GatewayError",
    "PastRelease",
    "RefusedError",
    "TokenError",
    "UnavailableError",
]

Result = TypeVar("Result")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 8.0
# A call that would wait longer than this because the gateway says so gives up, and says it.
_LONGEST_WAIT_S = 60.0
_CHANCE = random.SystemRandom()
# Besides its own kind of error httpx raises others at an answer with a broken redirection.
_TROUBLE = (httpx.RequestError, httpx.InvalidURL, ValueError)


class _Ask(NamedTuple):
    method: str
    url: str
    params: dict[str, str] | None = None
    json: dict[str, Any] | None = None
    headers: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"_Ask({self.method} {self.url})"  # the body may hold the true place


class _Pause(NamedTuple):
    seconds: float


class _Lost(NamedTuple):
    why: str
    again: bool  # whether another try may help


Got: TypeAlias = Answer | _Lost | None
Flow: TypeAlias = Generator[_Ask | _Pause, Got, Result]


class _Gateway(ABC):
    """What both clients share: settings, and what is said."""

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

        Each answer says how far the gateway's ledger has come, and the highest such position is
        shown with each request, so that a ledger that was set back is noticed. With
        `position_file` it outlives this client; several clients may share the file.
        """
        base = requests.base(url, insecure)
        if not (isinstance(token, str) and re.fullmatch(r"[!-~]+", token)):
            raise ParameterError("token must be visible ASCII without spaces, found another")
        self.url = str(base)
        self._token = token
        self._retries = requests.whole("retries", retries, 0)
        self._positions = requests.Positions(f"{base} {token}", position_file)
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
    ) -> Flow[ClientReport]:
        lat, lon = requests.degrees(place)
        made_at = requests.utc("at", datetime.now(UTC) if at is None else at)
        # Once, before the first try.
        name = str(uuid.uuid4()) if report_id is None else requests.name(report_id)
        body = {"lat": lat, "lon": lon, "at": made_at, "id": name}
        answer = yield from self._asked(_Ask("POST", "v1/report", json=body), name)
        return read(answer, as_report, name)

    def _budget(self) -> Flow[Budget]:
        answer = yield from self._asked(_Ask("GET", "v1/budget"))
        return read(answer, as_budget)

    def _page(
        self, before: datetime | None, size: int
    ) -> Flow[tuple[list[PastRelease], datetime | None]]:
        params = {"limit": str(requests.whole("page_size", size, 1))}
        if before is not None:
            params["before"] = requests.utc("before", before)
        answer = yield from self._asked(_Ask("GET", "v1/history", params))
        past, following = read(answer, as_page)
        if following is not None and before is not None and following >= before:
            raise AnswerError("the pages of the gateway's history do not go back in time")
        return past, following

    def _asked(self, ask: _Ask, report_id: str | None = None) -> Flow[bytes]:
        """The answer to a request that is sent, as it is, until there is one or tries run out."""
        tries = 0
        while True:
            got = yield ask._replace(headers=self._positions.header())
            tries += 1
            if isinstance(got, Answer) and got.status == 200:
                self._positions.keep(got.position)
                return got.body
            pause_s = _pause_s(got, tries)
            if pause_s is None or tries > self._retries:
                raise self._failure(got, tries, report_id)
            yield _Pause(pause_s)

    def _failure(self, got: Got, tries: int, report_id: str | None) -> GatewayError:
        count = f"{tries} tries" if tries > 1 else "1 try"
        if not isinstance(got, Answer):
            why = got.why if got else "nothing"
            words = f"no answer from the gateway after {count}; the last one ended in {why}"
            return UnavailableError(words, report_id=report_id)
        kind, words = meaning(got.status)
        theirs = said(got.body)
        if theirs and theirs.isprintable():
            # Gateways do not repeat what they were sent. Something on the way might.
            theirs = re.sub(r"\d+[.,]\d+", "…", theirs.replace(self._token, "…"))[:300]
            words = f"{words}: {theirs}"
        return kind(
            f"{words} (status {got.status}, {count})",
            status=got.status,
            report_id=report_id,
            retry_after_s=got.wait_s,
        )


class Client(_Gateway):
    """A gateway, for programs that wait. Safe to share between threads. Close it, or use `with`."""

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
        """Earlier releases, newest first; pages are asked for as they are needed."""
        more = True
        while more:
            past, before = self._run(self._page(before, page_size))
            yield from past
            more = before is not None

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, flow: Flow[Result]) -> Result:
        got: Got = None
        while True:
            try:
                wanted = flow.send(got)
            except StopIteration as done:
                result: Result = done.value
                return result
            if isinstance(wanted, _Pause):
                time.sleep(wanted.seconds)
                got = None
            else:
                got = self._send(wanted)

    def _send(self, ask: _Ask) -> Got:
        try:
            return _answer(self._http.request(**ask._asdict()))
        except _TROUBLE as lost:
            return _lost(lost)


class AsyncClient(_Gateway):
    """A gateway, for programs that await. Close it with `aclose`, or use `async with`."""

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
        """Let go of connections."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, flow: Flow[Result]) -> Result:
        got: Got = None
        while True:
            try:
                wanted = flow.send(got)
            except StopIteration as done:
                result: Result = done.value
                return result
            if isinstance(wanted, _Pause):
                await anyio.sleep(wanted.seconds)
                got = None
            else:
                got = await self._send(wanted)

    async def _send(self, ask: _Ask) -> Got:
        try:
            return _answer(await self._http.request(**ask._asdict()))
        except _TROUBLE as lost:
            return _lost(lost)


def _answer(response: httpx.Response) -> Answer:
    headers = response.headers
    position = headers.get(requests.POSITION)
    return Answer(response.status_code, headers.get("Retry-After"), response.content, position)


def _lost(error: Exception) -> _Lost:
    """An error of httpx by its name alone: it carries the request, which has the true place."""
    hopeless = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
    again = isinstance(error, httpx.TransportError) and not isinstance(error, hopeless)
    return _Lost(type(error).__name__, again)


def _pause_s(got: Got, tries: int) -> float | None:
    """How long to wait before the next try; None if there should be none."""
    wait_s = None
    if isinstance(got, Answer):
        wait_s = got.wait_s
        if got.status not in AGAIN or (wait_s is not None and wait_s > _LONGEST_WAIT_S):
            return None
    elif got is None or not got.again:
        return None
    # By chance, so that those who were sent away together do not come back together.
    if wait_s is not None:
        return wait_s + _FIRST_PAUSE_S * _CHANCE.random()
    most_s = min(_FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10), _LONGEST_PAUSE_S)
    return most_s * _CHANCE.uniform(0.5, 1.0)
