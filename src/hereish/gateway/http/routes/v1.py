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
from hereish.gateway.http.schemas import (
    ANSWERS,
    BEARER,
    Budget,
    Devices,
    DeviceToday,
    History,
    Moment,
    Past,
    ReportIn,
    ReportOut,
    iso,
)
from hereish.gateway.http.services import desk_of, shown_token
from hereish.gateway.ledger.models import Fix, InvalidRequestError
from hereish.gateway.ledger.positions import HEADER
from hereish.gateway.ledger.transaction import AHEAD_S
from hereish.gateway.observability.usage import local_day

_LAST_S = 253_402_300_799.0  # the year 9999, where datetimes end
router = APIRouter(prefix="/v1", tags=["v1"], responses=ANSWERS)


class Unfit(InvalidRequestError):
    """JSON of the right kind with a field that cannot be used."""


@router.post(
    "/report",
    response_model=ReportOut,
    openapi_extra=BEARER
    | {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ReportIn.model_json_schema()}},
        }
    },
)
async def report(request: Request) -> Response:
    """Report roughly where a device is. The same report sent again gets the same answer, free: the
    same is one with the same id, or of the same device and time.
    """
    desk = desk_of(request)
    token = desk.admit(shown_token(request))
    fix = _fix(await request.body())
    reported = await desk.report(token, [fix], position=request.headers.get(HEADER))
    [answer] = reported.answers
    if answer.outcome == "ahead":
        raise Unfit(
            f"at must not lie more than {AHEAD_S:g} s ahead of the gateway's clock; check yours"
        )
    standing, release = reported.budget, answer.release
    told = {
        "lat": release.lat if release else None,
        "lon": release.lon if release else None,
        "at": iso(release.at_s if release else fix.at_s),
        "kind": release.kind if release else Kind.NONE,
        "cost": release.cost if release else 0.0,
        "spent": standing.spent,
        "remaining": standing.remaining,
        "window": standing.window,
        "eps_test": release.eps_test if release else 0.0,
        "eps_noise": release.eps_noise if release else 0.0,
        "threshold_m": release.threshold_m if release else None,
        "accuracy_m": release.accuracy_m if release else None,
    }
    # As ReportOut has it, which a test checks: to check it here for each report is slow.
    # In a header, since it changes: the same report has the same answer.
    position = {HEADER: desk.ledger.position(reported.entry_count)}
    return Response(json.dumps(told), headers=position, media_type="application/json")


def _fix(body: bytes) -> Fix:
    told = None
    words = ""
    try:
        told = ReportIn.model_validate_json(body)
    except ValidationError as wrong:  # its own words quote the input
        fields = sorted(
            {str(e["loc"][0]) for e in wrong.errors(include_input=False) if e["loc"]} & {*_EXPECTED}
        )
        words = "; ".join(_EXPECTED[field] for field in fields)
    if told is None:
        raise Unfit(words or "the body must be a JSON object with lat and lon")
    if told.at is None:
        at_s = time.time()
    elif isinstance(told.at, datetime):
        if told.at.utcoffset() is None:
            raise Unfit("at must say its time zone, such as 2026-05-05T12:00:00Z")
        at_s = told.at.timestamp()
    else:
        at_s = told.at
    if not 0.0 <= at_s <= _LAST_S:
        raise Unfit("at must lie after 1970, as ISO 8601 or in Unix seconds")
    return Fix(told.lat, told.lon, at_s, told.id)


_EXPECTED = {
    "lat": "lat must be a number from -90 to 90",
    "lon": "lon must be a number from -180 to 180",
    "at": "at must be a time in ISO 8601 with a time zone, or Unix seconds",
    "id": "id must be a text of 1 to 200 characters",
}


@router.get("/budget", openapi_extra=BEARER)
async def budget(request: Request, response: Response) -> Budget:
    """Where the budget of the token's user stands."""
    desk = desk_of(request)
    token = desk.admit(shown_token(request))
    shown = request.headers.get(HEADER)
    device, book = await run_in_threadpool(desk.ledger.read_state, token, shown)
    response.headers[HEADER] = desk.ledger.position(book.entry_count)
    standing, policy = book.budget_at(time.time()), book.policy.settings
    return Budget(
        user=device.user,
        device=device.device,
        spent=standing.spent,
        remaining=standing.remaining,
        total=standing.total,
        window=standing.window,
        reports=standing.reports,
        exhausted=standing.exhausted,
        guarantee=book.policy.mechanism.guarantee,
        interval_s=policy.interval_s,
        time_zone=policy.time_zone,
        on_exhausted=policy.on_exhausted,
        policy_version=book.policy.version,
        policy_changes=book.next_policy is not None,
    )


@router.get("/history", openapi_extra=BEARER)
async def history(
    request: Request,
    before: Annotated[Moment | None, Query(description="Only those before this time.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> History:
    """What was released for the token's user, newest first. Releases only."""
    desk = desk_of(request)
    token = desk.admit(shown_token(request))
    if before is not None and before.utcoffset() is None:
        raise Unfit("before must say its time zone, such as 2026-05-05T12:00:00Z")
    before_s = None if before is None else before.timestamp()
    found = await run_in_threadpool(desk.ledger.history, token, before_s, limit)
    releases = [
        Past(
            lat=release.lat,
            lon=release.lon,
            at=iso(release.at_s),
            kind=release.kind,
            cost=release.cost,
            accuracy_m=release.accuracy_m,
            window=release.window,
            device=device,
        )
        for release, device in found
    ]
    return History(releases=releases, next=releases[-1].at if len(found) == limit else None)


@router.get("/devices", openapi_extra=BEARER)
async def devices(request: Request) -> Devices:
    """How many points each device of the token's user sent today."""
    desk = desk_of(request)
    token = desk.admit(shown_token(request))
    device, book = await run_in_threadpool(desk.ledger.read_state, token)
    day = local_day(book.policy.settings.time_zone)
    sent = await run_in_threadpool(desk.tallies.on_day, desk.ledger, device.user_id, day)
    rows = [DeviceToday(device=name, points_today=points) for name, points in sent.items()]
    return Devices(day=day, devices=rows)
