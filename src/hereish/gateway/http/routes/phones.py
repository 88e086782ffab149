"""The routes of phones' apps. Each responds with what its app needs, and no more.

These apps keep what they send until the response is 200, and send it again and again; some send
nothing else before it. So a point that can never be used gets 200 and an empty response, and is
counted. What may be accepted another time does not: an invalid token or key, too many points, a
ledger out of reach.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from hereish.gateway.http.auth import BASIC, BEARER, admit
from hereish.gateway.http.errors import OWNTRACKS_ERRORS, PHONE_ERRORS
from hereish.gateway.http.protocols import osmand, overland, owntracks
from hereish.gateway.http.protocols.payload import InvalidRequestError, ParsedPoints, UnusableReason
from hereish.gateway.http.services import Services
from hereish.gateway.ledger.queries import DeviceIdentity
from hereish.gateway.ledger.tokens import PresentedToken

router = APIRouter(tags=["phones"])
JSON = "application/json"
_LARGE_BYTES = 64 * 1024  # a smaller body is parsed within milliseconds
_MAY_SUCCEED_LATER = ("key", "size")  # with another key, or in smaller batches
_T = TypeVar("_T")


@router.post(
    "/owntracks", summary="OwnTracks in HTTP mode", responses=OWNTRACKS_ERRORS, openapi_extra=BASIC
)
async def from_owntracks(request: Request) -> Response:
    """Basic authentication with the token as the password. The user name and the headers
    X-Limit-U and X-Limit-D are ignored. The response is an array: empty, or with the
    release if the token was made with --show-release.
    """
    services, token = admit(request)
    known = services.group_commit.known_identity(token)
    device = known if known else await run_in_threadpool(services.ledger.identify, token)
    passphrase = None
    if device.passphrase is not None:
        passphrase = services.ledger.keys.open(device.passphrase, context=f"passphrase {token.id}")
    read = partial(owntracks.read, passphrase=passphrase)
    try:
        message = await _parse(await request.body(), read)
    except InvalidRequestError as error:
        await _recheck(services, token, known)
        _count_unusable(services, "owntracks", [_drop(error)])
        return Response(b"[]", media_type=JSON)
    if message.fix is None:
        await _recheck(services, token, known)
        return Response(b"[]", media_type=JSON)
    shows = device.show_release
    reported = await services.report(token, [message.fix], tid=message.tid, answers=shows)
    release = reported.answers[0].release if shows else None
    key = passphrase if message.encrypted else None
    return Response(owntracks.encode_response(release, message.tid, key), media_type=JSON)


async def _recheck(services: Services, token: PresentedToken, known: DeviceIdentity | None) -> None:
    """Check a token that is only known from before, where no report will do so."""
    if known is not None:
        await run_in_threadpool(services.ledger.identify, token)


@router.post("/overland", summary="Overland", responses=PHONE_ERRORS, openapi_extra=BEARER)
async def from_overland(request: Request) -> Response:
    """Bearer authentication. A batch of up to 1,000 locations, in any order."""
    services, token = admit(request)
    await _report_batch(services, token, await request.body(), overland.read, "overland")
    return Response(overland.RESPONSE, media_type=JSON)


async def from_osmand(request: Request, secret: str) -> Response:
    """OsmAnd, Traccar Client, GPSLogger: the token is the last part of the address."""
    services, token = admit(request, secret)
    body = await request.body()
    query, content_type = request.query_params.multi_items(), request.headers.get("content-type")
    now_s = time.time()

    def read(body: bytes) -> ParsedPoints:
        return osmand.read(query, content_type, body, now_s)

    await _report_batch(services, token, body, read, "osmand")
    return Response(status_code=200)


async def _report_batch(
    services: Services,
    token: PresentedToken,
    body: bytes,
    read: Callable[[bytes], ParsedPoints],
    protocol: str,
) -> None:
    """Report what can be used of a body, and count what cannot: of valid tokens only."""
    if len(body) > _LARGE_BYTES:  # not worth parsing for an invalid token; reports check it, too
        await run_in_threadpool(services.ledger.identify, token)
    try:
        points = await _parse(body, read)
    except InvalidRequestError as error:
        points = ParsedPoints([], [_drop(error)])
    await services.report(token, points.fixes, answers=False)
    _count_unusable(services, protocol, points.unusable)


async def _parse(body: bytes, read: Callable[[bytes], _T]) -> _T:
    """A large body is parsed off the event loop, which would stand still meanwhile."""
    return await run_in_threadpool(read, body) if len(body) > _LARGE_BYTES else read(body)


def _drop(error: InvalidRequestError) -> UnusableReason:
    """Why a body is dropped; raises if the app should send it again."""
    if error.reason in _MAY_SUCCEED_LATER:
        raise error
    return error.reason


def _count_unusable(services: Services, protocol: str, reasons: Iterable[UnusableReason]) -> None:
    for reason, number in Counter(reasons).items():
        services.metrics.unusable.labels(protocol, reason).inc(number)


# One route for all methods, so that the Allow header of a 405 names them; one per method for the
# schema, where each has an id of its own.
_METHODS = ["GET", "POST", "PUT"]
router.add_api_route("/osmand/{secret}", from_osmand, methods=_METHODS, include_in_schema=False)
for _method in _METHODS:
    router.add_api_route(
        "/osmand/{secret}",
        from_osmand,
        methods=[_method],
        summary="OsmAnd and Traccar",
        operation_id=f"osmand_{_method.lower()}",
        responses=PHONE_ERRORS,
    )

# People type addresses into phones, and some end them with a slash.
for _route in [route for route in router.routes if isinstance(route, APIRoute)]:
    router.add_api_route(
        f"{_route.path}/",
        _route.endpoint,
        methods=list(_route.methods or ()),
        include_in_schema=False,
    )
