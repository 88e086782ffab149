"""The routes of phones' own apps. Each answers what its app needs to hear, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hereish.gateway.desk import Desk, desk_of, shown_token
from hereish.gateway.protocols import osmand, overland, owntracks
from hereish.gateway.tokens import Presented
from hereish.gateway.words import BASIC, BEARER, PHONE_ANSWERS

router = APIRouter(tags=["phones"])
JSON = "application/json"
_LARGE_BYTES = 64 * 1024  # what is smaller is parsed within milliseconds
_Read = TypeVar("_Read")


async def _checked(desk: Desk, token: Presented, body: bytes) -> None:
    """Whoever has no true token is not worth the time that a large body takes.

    A small one is told by its report, which saves the ledger a question.
    """
    if len(body) > _LARGE_BYTES:
        await run_in_threadpool(desk.ledger.device, token)


async def _parsed(body: bytes, read: Callable[[bytes], _Read]) -> _Read:
    """A large body is read off the loop, where everybody else would wait for it."""
    return await run_in_threadpool(read, body) if len(body) > _LARGE_BYTES else read(body)


@router.post(
    "/owntracks", summary="OwnTracks in HTTP mode", responses=PHONE_ANSWERS, openapi_extra=BASIC
)
async def from_owntracks(request: Request) -> Response:
    """Basic authentication with the token as the password. The user name and the headers
    X-Limit-U and X-Limit-D are ignored. Answers an array: empty, or with what was
    released if the token was made with --show-release.
    """
    desk = desk_of(request)
    token = desk.admit(shown_token(request))
    device = await run_in_threadpool(desk.ledger.device, token)
    passphrase = None
    if device.passphrase is not None:
        passphrase = desk.ledger.keys.open(device.passphrase, about=f"passphrase {token.id}")
    message = await _parsed(await request.body(), partial(owntracks.read, passphrase=passphrase))
    if message.fix is None:
        return Response(b"[]", media_type=JSON)
    shows = device.show_release
    reported = await desk.report(token, [message.fix], tid=message.tid, answers=shows)
    release = reported.answers[0].release if shows else None
    back = owntracks.answer(release, message.tid, passphrase if message.encrypted else None)
    return Response(back, media_type=JSON)


@router.post("/overland", summary="Overland", responses=PHONE_ANSWERS, openapi_extra=BEARER)
async def from_overland(request: Request) -> Response:
    """Bearer authentication. A batch of up to 1,000 locations, in any order."""
    desk = desk_of(request)
    token = desk.admit(shown_token(request))
    body = await request.body()
    await _checked(desk, token, body)
    fixes = await _parsed(body, overland.read)
    await desk.report(token, fixes, answers=False)
    return Response(overland.ANSWER, media_type=JSON)


async def from_osmand(request: Request, secret: str) -> Response:
    """OsmAnd, Traccar Client, GPSLogger: the token is the last part of the address."""
    desk = desk_of(request)
    token = desk.admit(secret)
    body = await request.body()
    await _checked(desk, token, body)
    query, kind = request.query_params.multi_items(), request.headers.get("content-type")
    fixes = await _parsed(body, lambda body: osmand.read(query, kind, body, time.time()))
    await desk.report(token, fixes, answers=False)
    return Response(status_code=200)


# One route for both, so that the Allow header of a 405 names both; two for the schema, where each
# method has an id of its own.
router.add_api_route(
    "/osmand/{secret}", from_osmand, methods=["GET", "POST"], include_in_schema=False
)
for _method in ("GET", "POST"):
    router.add_api_route(
        "/osmand/{secret}",
        from_osmand,
        methods=[_method],
        summary="OsmAnd and Traccar",
        operation_id=f"osmand_{_method.lower()}",
        responses=PHONE_ANSWERS,
    )

# People type addresses into phones, and some end them with a slash.
for _route in [route for route in router.routes if isinstance(route, APIRoute)]:
    router.add_api_route(
        f"{_route.path}/",
        _route.endpoint,
        methods=list(_route.methods or ()),
        include_in_schema=False,
    )
