"""What the tests of forwarding share: a phone, and how messages are compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from hereish.gateway.admin import accounts, destinations
from hereish.gateway.ledger import tokens
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.ledger.policy import Policy

START_S = 1_780_000_020.0  # a whole minute
PASSWORD = "s3cret-of-alice"  # noqa: S105  # it opens nothing
# Each minute has a budget of its own, so there is something to forward each minute.
POLICY = Policy(level=math.log(10), radius_m=100, accuracy_m=3000, window="60", interval_s=0.0)


@dataclass
class Phone:
    """Reports once a minute from a true place, and keeps what it was told."""

    ledger: Ledger
    token: tokens.PresentedToken
    tid: str | None = "al"
    minutes: int = 0

    def report(self, number: int = 1) -> list[tuple[int, float, float]]:
        """Time, latitude and longitude of the new releases."""
        fixes = [
            Fix(39.98123456, 116.31654321, START_S + 60.0 * (self.minutes + i))
            for i in range(number)
        ]
        self.minutes += number
        told = self.ledger.report(self.token, fixes, tid=self.tid, now_s=fixes[-1].at_s)
        releases = [answer.release for answer in told.answers]
        assert all(releases)
        return [(int(r.at_s), r.lat, r.lon) for r in releases if r is not None]


on_both = pytest.mark.parametrize("paths", ["sqlite", "postgresql"], indirect=True)


def phone_of(ledger: Ledger, user: str) -> Phone:
    token = tokens.parse_token(accounts.new_token(ledger, user, "phone"))
    assert token is not None
    return Phone(ledger, token)


def seen(bodies: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """Messages of OwnTracks as the phone has its releases."""
    return [(body["tst"], body["lat"], body["lon"]) for body in bodies]


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """All of all records, not only what a format would show."""
    return caplog.text + repr([record.__dict__ for record in caplog.records])


def the_only(ledger: Ledger) -> destinations.Destination:
    (found,) = destinations.list_destinations(ledger, "alice")
    return found
