"""The routes of the library's own clients: /v1."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hereish.core.types import Kind
from hereish.gateway.http.auth import BEARER, admit
from hereish.gateway.http.errors import V1_ERRORS, InvalidFieldError
from hereish.gateway.http.protocols.formatting import to_iso
from hereish.gateway.http.schemas import (
    BudgetBody,
    DevicesBody,
    DeviceUsage,
    ForecastBody,
    HistoryBody,
    HistoryItem,
    IsoTime,
    LimitBody,
    ReportRequestBody,
    ReportResponseBody,
    SecondPromiseBody,
)
from hereish.gateway.ledger.budget_status import SecondStatus
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.positions import HEADER
from hereish.gateway.ledger.rest_forecast import RestForecast, forecast_rest
from hereish.gateway.ledger.transaction import AHEAD_S
from hereish.gateway.observability.usage import local_day

_LAST_S = 253_402_300_799.0  # the year 9999, where datetimes end
router = APIRouter(prefix="/v1", tags=["v1"], responses=V1_ERRORS)


@router.post(
    "/report",
    response_model=ReportResponseBody,
    openapi_extra=BEARER
    | {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ReportRequestBody.model_json_schema()}},
        }
    },
)
async def report(request: Request) -> Response:
    """Report where a device is; the response says roughly where. The same report sent again gets
    the same release for free: one with the same id, or of the same device and time.
    """
    services, token = admit(request)
    fix = _read_fix(await request.body())
    reported = await services.report(token, [fix], position=request.headers.get(HEADER))
    [answer] = reported.answers
    if answer.outcome == "ahead":
        raise InvalidFieldError(
            f"at must not lie more than {AHEAD_S:g} s ahead of the gateway's clock; check yours"
        )
    budget, release = reported.budget, answer.release
    content = {
        "lat": release.lat if release else None,
        "lon": release.lon if release else None,
        "at": to_iso(release.at_s if release else fix.at_s),
        "kind": release.kind if release else Kind.NONE,
        "cost": release.cost if release else 0.0,
        "spent": budget.spent,
        "remaining": budget.remaining,
        "window": budget.window,
        "eps_test": release.eps_test if release else 0.0,
        "eps_noise": release.eps_noise if release else 0.0,
        "threshold_m": release.threshold_m if release else None,
        "accuracy_m": release.accuracy_m if release else None,
        "noise_first": release.noise_first if release else False,
        "moves_noise": release.moves_noise if release else 0.0,
        "full": answer.full,
    }
    # As ReportResponseBody has it, which a test checks: validating every response is slow.
    # In a header, since it changes: the same report has the same body.
    position = {HEADER: services.ledger.position(reported.entry_count)}
    return Response(json.dumps(content), headers=position, media_type="application/json")


def _read_fix(body: bytes) -> Fix:
    report, message = None, ""
    try:
        report = ReportRequestBody.model_validate_json(body)
    except ValidationError as error:  # its own message quotes the input
        fields = {str(e["loc"][0]) for e in error.errors(include_input=False) if e["loc"]}
        message = "; ".join(_EXPECTED[field] for field in sorted(fields & {*_EXPECTED}))
    if report is None:
        raise InvalidFieldError(message or "the body must be a JSON object with lat and lon")
    if report.at is None:
        at_s = time.time()
    elif isinstance(report.at, datetime):
        at_s = _to_seconds("at", report.at)
    else:
        at_s = report.at
    if not 0.0 <= at_s <= _LAST_S:
        raise InvalidFieldError("at must lie after 1970, as ISO 8601 or in Unix seconds")
    return Fix(report.lat, report.lon, at_s, report.id)


def _to_seconds(field: str, moment: datetime) -> float:
    if moment.utcoffset() is None:
        raise InvalidFieldError(f"{field} must say its time zone, such as 2026-05-05T12:00:00Z")
    return moment.timestamp()


_EXPECTED = {
    "lat": "lat must be a number from -90 to 90",
    "lon": "lon must be a number from -180 to 180",
    "at": "at must be a time in ISO 8601 with a time zone, or Unix seconds",
    "id": "id must be a text of 1 to 200 characters",
}


@router.get("/budget", openapi_extra=BEARER)
async def read_budget(request: Request, response: Response) -> BudgetBody:
    """What is spent and what is left of the privacy budget of the token's user."""
    services, token = admit(request)
    position = request.headers.get(HEADER)
    device, state = await run_in_threadpool(services.ledger.read_state, token, position)
    response.headers[HEADER] = services.ledger.position(state.entry_count)
    now_s = time.time()
    budget, policy = state.budget_at(now_s), state.policy.settings
    expected = await run_in_threadpool(forecast_rest, state, now_s)
    second = await run_in_threadpool(state.second_promise_at, now_s)
    return BudgetBody(
        user=device.user,
        device=device.device,
        spent=budget.spent,
        remaining=budget.remaining,
        total=budget.total,
        window=budget.window,
        reports=budget.reports,
        exhausted=budget.exhausted,
        limits=[
            LimitBody(
                window=limit.window,
                spent=limit.spent,
                remaining=limit.remaining,
                total=limit.total,
            )
            for limit in budget.limits
        ],
        forecast=None if expected is None else _forecast_body(expected),
        guarantee=state.policy.mechanism.guarantee,
        second_promise=None if second is None else _second_promise_body(second),
        policy=policy.describe(),
        interval_s=policy.interval_s,
        time_zone=policy.time_zone,
        on_exhausted=policy.on_exhausted,
        policy_version=state.policy.version,
        policy_changes=state.next_policy is not None,
    )


def _second_promise_body(second: SecondStatus) -> SecondPromiseBody:
    return SecondPromiseBody(
        level=second.promise.level,
        level_so_far=second.level_so_far,
        delta=second.promise.delta,
        statement=second.promise.statement,
    )


def _forecast_body(expected: RestForecast) -> ForecastBody:
    def iso(at_s: float | None) -> str | None:
        return None if at_s is None else to_iso(at_s)

    return ForecastBody(
        window_ends=iso(expected.window_ends_s),
        looked_until=to_iso(expected.looked_until_s),
        lasts_share=expected.lasts_share,
        ends_early=iso(expected.ends_early_s),
        ends_typical=iso(expected.ends_typical_s),
        ends_late=iso(expected.ends_late_s),
    )


@router.get("/history", openapi_extra=BEARER)
async def read_history(
    request: Request,
    before: Annotated[IsoTime | None, Query(description="Only those before this time.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> HistoryBody:
    """The releases of the token's user, newest first."""
    services, token = admit(request)
    before_s = None if before is None else _to_seconds("before", before)
    rows = await run_in_threadpool(services.ledger.history, token, before_s, limit)
    releases = [
        HistoryItem(
            lat=release.lat,
            lon=release.lon,
            at=to_iso(release.at_s),
            kind=release.kind,
            cost=release.cost,
            accuracy_m=release.accuracy_m,
            window=release.window,
            device=device,
        )
        for release, device in rows
    ]
    return HistoryBody(releases=releases, next=releases[-1].at if len(rows) == limit else None)


@router.get("/devices", openapi_extra=BEARER)
async def read_devices(request: Request) -> DevicesBody:
    """How many points each device of the token's user sent today."""
    services, token = admit(request)
    device, state = await run_in_threadpool(services.ledger.read_state, token)
    day = local_day(state.policy.settings.time_zone)
    sent = await run_in_threadpool(services.usage.on_day, services.ledger, device.user_id, day)
    rows = [DeviceUsage(device=name, points_today=points) for name, points in sent.items()]
    return DevicesBody(day=day, devices=rows)
