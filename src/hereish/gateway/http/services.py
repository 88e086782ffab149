"""What the routes share: the ledger, its queue, limits, counts and forwarding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.http.rate_limit import RateLimiter, RateLimitError
from hereish.gateway.ledger.group_commit import GroupCommit
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix, ReportRequest
from hereish.gateway.ledger.tokens import PresentedToken
from hereish.gateway.ledger.transaction import ReportResponse
from hereish.gateway.observability.metrics import Metrics
from hereish.gateway.observability.usage import UsageCounts, local_day


@dataclass(frozen=True)
class Services:
    """One per application."""

    ledger: Ledger
    group_commit: GroupCommit
    limiter: RateLimiter
    metrics: Metrics
    usage: UsageCounts
    forwarder: Forwarder

    async def report(
        self,
        token: PresentedToken,
        fixes: Sequence[Fix],
        *,
        tid: str | None = None,
        answers: bool = True,
        position: str | None = None,
    ) -> ReportResponse:
        """Report fixes to the ledger, off the event loop, and count what became of them.

        Raises RateLimitError if the token has to wait.
        """
        wait_s = self.limiter.wait_s(token.digest, len(fixes), counted=1)
        if wait_s:
            raise RateLimitError(wait_s)
        reported = await self.group_commit.report(
            ReportRequest(token, fixes, tid, answers, position=position)
        )
        for outcome, number in Counter(answer.outcome for answer in reported.answers).items():
            self.metrics.points.labels(outcome).inc(number)
        self.usage.add(reported.device, local_day(reported.policy.time_zone), len(fixes))
        if any(answer.own and answer.outcome != "again" for answer in reported.answers):
            self.forwarder.wake()
        return reported


def services_of(request: Request) -> Services:
    """The services of the application that serves a request."""
    services = request.app.state.services
    if not isinstance(services, Services):
        raise RuntimeError("the gateway has not started")
    return services
