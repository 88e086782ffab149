"""Where every request passes: who asks, how often, what the ledger says, what is counted."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from hereish.errors import HereishError
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.http.rate_limit import Limiter
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.group_commit import Clerk
from hereish.gateway.ledger.ledger import Ask, Ledger, Refused, Reported
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.tokens import Presented
from hereish.gateway.observability.metrics import Metrics
from hereish.gateway.observability.usage import Tallies, day_of


class TooOften(HereishError):  # noqa: N818  # it says what it is
    """A token that sends more points than it may."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("too many points with this token; nothing was taken, so send them later")
        self.wait_s = wait_s


@dataclass(frozen=True)
class Desk:
    """What the routes share."""

    ledger: Ledger
    clerk: Clerk
    limiter: Limiter
    metrics: Metrics
    tallies: Tallies
    forwarder: Forwarder

    def admit(self, shown: str | None) -> Presented:
        """A token that may go on to the ledger, which says whether it is a true one."""
        token = tokens.presented(shown) if shown else None
        if token is None:
            raise Refused("a token is needed: 'hereish token new' makes one")
        wait_s = self.limiter.wait_s(token.digest)
        if wait_s:
            raise TooOften(wait_s)
        return token

    async def report(
        self,
        token: Presented,
        fixes: Sequence[Fix],
        *,
        tid: str | None = None,
        answers: bool = True,
        position: str | None = None,
    ) -> Reported:
        """Through the ledger, off the loop. What is more than a token may send has to wait."""
        wait_s = self.limiter.wait_s(token.digest, len(fixes), counted=1)
        if wait_s:
            raise TooOften(wait_s)
        reported = await self.clerk.report(Ask(token, fixes, tid, answers, position=position))
        for outcome, number in Counter(answer.outcome for answer in reported.answers).items():
            self.metrics.points.labels(outcome).inc(number)
        fresh = any(answer.own and answer.outcome != "again" for answer in reported.answers)
        day = day_of(reported.policy.time_zone)
        self.tallies.add(reported.device, day, len(fixes))
        if fresh:
            self.forwarder.wake()
        return reported


def desk_of(request: Request) -> Desk:
    desk = request.app.state.desk
    if not isinstance(desk, Desk):
        raise RuntimeError("the gateway has not started")
    return desk


def shown_token(request: Request) -> str | None:
    """The token of a request: as Bearer, or as the password of Basic (whose user is not asked)."""
    scheme, _, told = request.headers.get("authorization", "").partition(" ")
    told = told.strip()
    if scheme.lower() == "bearer":
        return told
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(told, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None
