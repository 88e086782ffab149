"""The values that go into the ledger and come out of it: secret fixes in, public releases out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hereish.core.types import Kind
from hereish.gateway.ledger.tokens import PresentedToken


class Fix(NamedTuple):
    """Where a device says it is, and when. Secret: never stored, logged or shown."""

    lat: float
    lon: float
    at_s: float
    id: str | None = None  # of this report, if its sender gave one: the same id, the same report

    def __repr__(self) -> str:
        return "Fix(…)"  # so that no log, traceback or assertion can show it by mistake


class ReportRequest(NamedTuple):
    """The fixes of one device: what `Ledger.report_all` takes."""

    token: PresentedToken
    fixes: Sequence[Fix]
    tid: str | None = None  # OwnTracks' tracker id, forwarded with the releases
    answers: bool = True  # False: releases that cost nothing are not looked up
    now_s: float | None = None
    position: str | None = None  # of the ledger, as the client last received it (positions.py)


@dataclass(frozen=True, slots=True)
class LedgerRelease:
    """One release of the ledger. All of it is public.

    `accuracy_m` is the noise radius: noise as this release's plan draws it lies within it with
    probability 0.9. It depends on the policy and on earlier releases, never on the place.
    """

    lat: float
    lon: float
    at_s: float
    kind: Kind
    cost: float
    accuracy_m: float
    eps_test: float  # paid for the test, 0 where there was none
    eps_noise: float  # what noise cost if it was hard, 0 where none could be drawn
    threshold_m: float | None  # None where there was no test
    window: str  # which reports share the budget that this one was paid from
    noise_first: bool = False  # the noise was drawn first, and the test looked at it
    moves_noise: float = 0.0  # how far fresh noise was moved at most, in multiples of 1 / eps_noise


class EntryRef(NamedTuple):
    """An entry by number and creation time: another history reuses the number at another time."""

    number: int
    made_s: float


NO_ENTRY = EntryRef(0, 0.0)
