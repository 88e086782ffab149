"""The routes for the operator: health and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hereish.errors import HereishError
from hereish.gateway.http.services import Services, services_of
from hereish.gateway.observability.metrics import MEDIA_TYPE

router = APIRouter(tags=["operator"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "The ledger cannot be used."}})
async def readyz(request: Request) -> dict[str, str]:
    """The ledger can be used."""
    await run_in_threadpool(services_of(request).ledger.check_health)
    return {"status": "ok"}


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    services = services_of(request)
    await run_in_threadpool(_update_gauges, services)
    return Response(services.metrics.text(), headers={"Content-Type": MEDIA_TYPE})


def _update_gauges(services: Services) -> None:
    try:
        services.metrics.waiting.set(services.forwarder.outbox.count())
        services.metrics.ledger_up.set(1)
    except HereishError:
        services.metrics.ledger_up.set(0)
