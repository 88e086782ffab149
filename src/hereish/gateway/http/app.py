"""The application: services, middleware, routes and error responses put together."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

import hereish
from hereish.errors import HereishError
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.http.auth import SECURITY_SCHEMES
from hereish.gateway.http.errors import ROUTING_ERRORS, status_of
from hereish.gateway.http.middleware import DEFAULT_BODY_BYTES, DEFAULT_BODY_S, GatewayMiddleware
from hereish.gateway.http.periodic_tasks import PeriodicTasks
from hereish.gateway.http.rate_limit import RateLimiter, RateLimitError, to_retry_after
from hereish.gateway.http.routes import operator, phones, v1
from hereish.gateway.http.routes.pages import page_routes
from hereish.gateway.http.services import Services
from hereish.gateway.ledger.group_commit import GroupCommit
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.observability.logs import log_event
from hereish.gateway.observability.metrics import Metrics
from hereish.gateway.observability.usage import UsageCounts

DEFAULT_PER_S = 20.0
_FORWARDING_GRACE_S = 5.0


def create_app(
    ledger: Ledger,
    *,
    per_s: float = DEFAULT_PER_S,
    body_bytes: int = DEFAULT_BODY_BYTES,
    body_s: float = DEFAULT_BODY_S,
) -> FastAPI:
    """The gateway around an open ledger, which it closes when it ends."""
    services = Services(
        ledger, GroupCommit(ledger), RateLimiter(per_s), Metrics(), UsageCounts(), Forwarder(ledger)
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = PeriodicTasks(services)
        services.group_commit.start()
        services.forwarder.start()
        tasks.start()
        log_event("started", version=hereish.__version__)
        yield
        await run_in_threadpool(services.group_commit.stop)
        await run_in_threadpool(tasks.stop)
        await run_in_threadpool(services.forwarder.stop, _FORWARDING_GRACE_S)
        ledger.close()
        log_event("stopped")

    app = FastAPI(
        title="hereish",
        version=hereish.__version__,
        description="Reports roughly where somebody is, within a privacy budget.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.add_middleware(
        GatewayMiddleware, metrics=services.metrics, body_bytes=body_bytes, body_s=body_s
    )
    for router in (v1.router, phones.router, operator.router):
        app.include_router(router)
    app.router.routes.extend(page_routes())
    app.add_exception_handler(HereishError, _handle_error)
    app.add_exception_handler(RequestValidationError, _handle_error)
    app.add_exception_handler(HTTPException, _handle_routing_error)
    app.openapi()["components"]["securitySchemes"] = SECURITY_SCHEMES  # it is made once and kept
    return app


async def _handle_error(request: Request, error: Exception) -> Response:
    """The response to an error, by the table. FastAPI's own responses repeat the input."""
    found = status_of(error)
    headers: dict[str, str] = {}
    if found.status == 500:
        raise error  # to the middleware, which logs it
    if found.status == 503:
        log_event("ledger", logging.ERROR, words=str(error))
    if found.status == 401:
        # At Basic a browser asks for a password by itself, over the owner's page.
        basic = request.url.path.rstrip("/") == "/owntracks"
        headers["WWW-Authenticate"] = 'Basic realm="hereish"' if basic else "Bearer"
    wait_s = error.wait_s if isinstance(error, RateLimitError) else found.retry_after_s
    if wait_s is not None:
        headers["Retry-After"] = to_retry_after(wait_s)
    return JSONResponse({"error": found.message or str(error)}, found.status, headers)


async def _handle_routing_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    message = ROUTING_ERRORS.get(error.status_code, ROUTING_ERRORS[405])
    return JSONResponse({"error": message}, error.status_code, dict(error.headers or {}))
