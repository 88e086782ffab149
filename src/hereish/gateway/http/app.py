"""The application: routes, errors, and what runs beside them."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

import hereish
from hereish.errors import HereishError
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.http import api_page, owner_page
from hereish.gateway.http.middleware import DEFAULT_BODY_BYTES, DEFAULT_BODY_S, Guard
from hereish.gateway.http.rate_limit import Limiter, whole_s
from hereish.gateway.http.routes import phones, v1
from hereish.gateway.http.schemas import SCHEMES
from hereish.gateway.http.services import Desk, TooOften, desk_of
from hereish.gateway.ledger.database import LedgerUnreachable
from hereish.gateway.ledger.group_commit import Clerk
from hereish.gateway.ledger.high_water_mark import Restored
from hereish.gateway.ledger.keys import KeyTrouble
from hereish.gateway.ledger.ledger import Ledger, Refused
from hereish.gateway.ledger.models import Nonsense
from hereish.gateway.observability.logs import tell
from hereish.gateway.observability.metrics import MEDIA_TYPE, Metrics
from hereish.gateway.observability.usage import Tallies

DEFAULT_PER_S = 20.0
_FLUSH_S = 5.0


def create_app(
    ledger: Ledger,
    *,
    per_s: float = DEFAULT_PER_S,
    body_bytes: int = DEFAULT_BODY_BYTES,
    body_s: float = DEFAULT_BODY_S,
) -> FastAPI:
    """The gateway around an open ledger, which it closes when it ends."""
    desk = Desk(ledger, Clerk(ledger), Limiter(per_s), Metrics(), Tallies(), Forwarder(ledger))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        chores = _Chores(desk)
        desk.clerk.start()
        desk.forwarder.start()
        chores.start()
        tell("started", version=hereish.__version__)
        yield
        await run_in_threadpool(desk.clerk.stop)
        await run_in_threadpool(chores.stop)
        await run_in_threadpool(desk.forwarder.stop, 5.0)
        ledger.close()
        tell("stopped")

    app = FastAPI(
        title="hereish",
        version=hereish.__version__,
        description="Reports roughly where somebody is, within a privacy budget.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.desk = desk
    app.add_middleware(Guard, metrics=desk.metrics, body_bytes=body_bytes, body_s=body_s)
    app.include_router(v1.router)
    app.include_router(phones.router)
    _add_operator(app)
    _add_files(app)
    for kind in (HereishError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _refusal)
    app.openapi()["components"]["securitySchemes"] = SCHEMES  # it is made once and kept
    return app


async def _refusal(request: Request, wrong: Exception) -> Response:
    """Trouble in words of ours. FastAPI's own answers repeat the input."""
    headers: dict[str, str] = {}
    if isinstance(wrong, Refused):
        # A browser that is told Basic asks for a password by itself, over the owner's page.
        basic = request.url.path.rstrip("/") == "/owntracks"
        status, headers = 401, {"WWW-Authenticate": 'Basic realm="hereish"' if basic else "Bearer"}
    elif isinstance(wrong, TooOften):
        status, headers = 429, {"Retry-After": whole_s(wrong.wait_s)}
    elif isinstance(wrong, v1.Unfit):
        status = 422
    elif isinstance(wrong, Nonsense):
        status = 413 if wrong.reason == "size" else 400
    elif isinstance(wrong, LedgerUnreachable | Restored | KeyTrouble):
        status, headers = 503, {"Retry-After": "5"}
        tell("ledger", logging.ERROR, words=str(wrong))
        wrong = HereishError("the ledger cannot be used just now; nothing was released")
    elif isinstance(wrong, RequestValidationError):
        status, wrong = 422, HereishError("a parameter of the address cannot be used")
    elif isinstance(wrong, HTTPException):
        status, headers = wrong.status_code, dict(wrong.headers or {})
        wrong = HereishError(
            "there is nothing here" if status == 404 else "another method is expected here"
        )
    else:
        raise wrong  # the guard answers it without its words
    return JSONResponse({"error": str(wrong)}, status, headers)


def _add_operator(app: FastAPI) -> None:
    @app.get("/healthz", tags=["operator"])
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["operator"], responses={503: {"description": "It cannot."}})
    async def readyz(request: Request) -> dict[str, str]:
        """The ledger can be used."""
        await run_in_threadpool(desk_of(request).ledger.alive)
        return {"status": "ok"}

    @app.get("/metrics", tags=["operator"], response_class=Response)
    async def metrics(request: Request) -> Response:
        """Numbers for Prometheus."""
        desk = desk_of(request)
        await run_in_threadpool(_look, desk)
        return Response(desk.metrics.text(), headers={"Content-Type": MEDIA_TYPE})


def _look(desk: Desk) -> None:
    try:
        desk.metrics.waiting.set(desk.forwarder.outbox.count())
        desk.metrics.ledger_up.set(1)
    except HereishError:
        desk.metrics.ledger_up.set(0)


def _add_files(app: FastAPI) -> None:
    """The owner's page, and the page of the API."""
    for files, headers in (
        (owner_page.FILES, owner_page.HEADERS),
        (api_page.files(), api_page.HEADERS),
    ):
        for path, file in files.items():
            app.add_route(path, _static(file.content, file.media_type, headers), ["GET"])


def _static(
    content: bytes, media_type: str, headers: Mapping[str, str]
) -> Callable[[Request], Awaitable[Response]]:
    """Answers with one file that is in memory."""

    async def answer(_: Request) -> Response:
        return Response(content, headers={**headers, "Content-Type": media_type})

    return answer


class _Chores:
    """Small work every second: the mark to the disk, tallies to the ledger."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chores", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        self._do(self._flush)

    def _run(self) -> None:
        seconds = 0.0
        while not self._end.wait(1.0):
            self._do(self._desk.ledger.catch_up)
            self._do(self._desk.ledger.mark.sync)
            seconds += 1.0
            if seconds >= _FLUSH_S:
                seconds = 0.0
                self._do(self._flush)

    def _flush(self) -> None:
        self._desk.tallies.flush(self._desk.ledger)

    @staticmethod
    def _do(chore: Callable[[], None]) -> None:
        try:
            chore()
        except Exception as trouble:  # noqa: BLE001  # the next time it may go well
            tell("chore failed", logging.WARNING, kind=type(trouble).__name__)
