"""What comes in, and what goes out: true fixes, and releases. Nothing is both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hereish.core.types import Kind


class Fix(NamedTuple):
    """Where a device says it is, and when. Secret; it is never stored, logged or shown."""

    lat: float
    lon: float
    at_s: float
    id: str | None = None  # of this report, if its sender named it: the same id is the same report

    def __repr__(self) -> str:
        return "Fix(…)"  # so that no log, traceback or assertion can show it by mistake


@dataclass(frozen=True, slots=True)
class Release:
    """One release of the ledger. All of it is public.

    `accuracy_m` is the noise radius: fresh noise of this release's plan lies within it nine times
    out of ten. It depends on the policy and on earlier releases, never on the place.
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
