"""The routes of phones' own apps. Each answers what its app needs to hear, and no more.

These apps keep what they send until somebody answers 200, and send it again and again; some send
nothing else before it. So a point that can never be taken gets 200 and an empty answer, and is
counted. What may be taken another time does not: a token or a key that is not the right one, too
many points, a ledger out of reach.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hereish.gateway.http.protocols import osmand, overland, owntracks
from hereish.gateway.http.schemas import BASIC, BEARER, OWNTRACKS_ANSWERS, PHONE_ANSWERS
from hereish.gateway.http.services import Desk, desk_of, shown_token
from hereish.gateway.ledger.models import InvalidRequestError, Points
from hereish.gateway.ledger.queries import DeviceIdentity
from hereish.gateway.ledger.tokens import PresentedToken

router = APIRouter(tags=["phones"])
JSON = "application/json"
_LARGE_BYTES = 64 * 1024  # what is smaller is parsed within milliseconds
_MAY_BE_TAKEN_LATER = ("key", "size")  # with another key, or in smaller batches
_Read = TypeVar("_Read")


async def _checked(desk: Desk, token: PresentedToken, body: bytes) -> None:
    """Whoever has no true token is not worth the time that a large body takes.

    A small one is told by its report, which saves the ledger a question.
    """
    if len(body) > _LARGE_BYTES:
        await run_in_threadpool(desk.ledger.identify, token)


async def _parsed(body: bytes, read: Callable[[bytes], _Read]) -> _Read:
    """A large body is read off the loop, where everybody else would wait for it."""
    return await run_in_threadpool(read, body) if len(body) > _LARGE_BYTES else read(body)


async def _points(body: bytes, read: Callable[[bytes], Points]) -> Points:
    """What can be taken of a body, and what cannot."""
    try:
        return await _parsed(body, read)
    except InvalidRequestError as nonsense:
        return _nothing_of(nonsense)


def _nothing_of(nonsense: InvalidRequestError) -> Points:
    if nonsense.reason in _MAY_BE_TAKEN_LATER:
        raise nonsense
    return Points([], [nonsense.reason])


async def _taken(desk: Desk, token: PresentedToken, points: Points, protocol: str) -> None:
    """Report what can be taken, and count what cannot: of true tokens only, and only once."""
    await desk.report(token, points.fixes, answers=False)
    _count(desk, points, protocol)


def _count(desk: Desk, points: Points, protocol: str) -> None:
    for reason, number in Counter(points.unusable).items():
        desk.metrics.unusable.labels(protocol, reason).inc(number)


async def _recheck(desk: Desk, token: PresentedToken, known: DeviceIdentity | None) -> None:
    """Check a token that is only known from before, where no report will do so."""
    if known is not None:
        await run_in_threadpool(desk.ledger.identify, token)


@router.post(
    "/owntracks", summary="OwnTracks in HTTP mode", responses=OWNTRACKS_ANSWERS, openapi_extra=BASIC
)
async def from_owntracks(request: Request) -> Response:
    """Basic authentication with the token as the password. The user name and the headers
    X-Limit-U and X-Limit-D are ignored. Answers an array: empty, or with what was
    released if the token was made with --show-release.
    """
    desk = desk_of(request)
    token = desk.admit(shown_token(request))
    known = desk.clerk.known_identity(token)
    device = known if known else await run_in_threadpool(desk.ledger.identify, token)
    passphrase = None
    if device.passphrase is not None:
        passphrase = desk.ledger.keys.open(device.passphrase, context=f"passphrase {token.id}")
    try:
        message = await _parsed(
            await request.body(), partial(owntracks.read, passphrase=passphrase)
        )
    except InvalidRequestError as nonsense:
        await _recheck(desk, token, known)
        _count(desk, _nothing_of(nonsense), "owntracks")
        return Response(b"[]", media_type=JSON)
    if message.fix is None:
        await _recheck(desk, token, known)
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
    await _taken(desk, token, await _points(body, overland.read), "overland")
    return Response(overland.ANSWER, media_type=JSON)


async def from_osmand(request: Request, secret: str) -> Response:
    """OsmAnd, Traccar Client, GPSLogger: the token is the last part of the address."""
    desk = desk_of(request)
    token = desk.admit(secret)
    body = await request.body()
    await _checked(desk, token, body)
    query, kind = request.query_params.multi_items(), request.headers.get("content-type")
    now_s = time.time()
    points = await _points(body, lambda body: osmand.read(query, kind, body, now_s))
    await _taken(desk, token, points, "osmand")
    return Response(status_code=200)


# One route for all, so that the Allow header of a 405 names them; one each for the schema, where
# each method has an id of its own.
_METHODS = ["GET", "POST", "PUT"]
router.add_api_route("/osmand/{secret}", from_osmand, methods=_METHODS, include_in_schema=False)
for _method in _METHODS:
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
