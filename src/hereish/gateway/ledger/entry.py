"""An entry of the ledger: what one report added to it. Public."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hereish.core.noise_first import NoiseFirst
from hereish.core.types import Kind
from hereish.core.windows import Window
from hereish.gateway.ledger.models import LedgerRelease
from hereish.gateway.ledger.policy import StoredPolicy


class Entry(NamedTuple):
    """What one report added to the ledger. Public."""

    at_s: float
    lat: float | None
    lon: float | None
    kind: Kind  # Kind.NONE: nothing could be released
    cost: float
    accuracy_m: float | None
    eps_test: float
    eps_noise: float
    threshold_m: float | None
    window: int | None
    policy_id: int
    device: str
    full_limit: int | None = None  # of Kind.NONE: which limit was full; None: the window itself

    def release(self, policy: StoredPolicy) -> LedgerRelease | None:
        """The release of this entry, if it has one."""
        if self.lat is None or self.lon is None or self.accuracy_m is None:
            return None
        m = policy.mechanism
        return LedgerRelease(
            lat=self.lat,
            lon=self.lon,
            at_s=self.at_s,
            kind=self.kind,
            cost=self.cost,
            accuracy_m=self.accuracy_m,
            eps_test=self.eps_test,
            eps_noise=self.eps_noise,
            threshold_m=self.threshold_m,
            window=m.window.covers(self.window),
            noise_first=m.own_decision is NoiseFirst,
            moves_noise=m.moves_noise,
        )

    def full_window(self, policy: StoredPolicy) -> str | None:
        """The window that was full when nothing could be released; None if something was."""
        if self.kind != Kind.NONE:
            return None
        m = policy.mechanism
        if self.full_limit is None or self.full_limit >= len(m.limits):
            return m.window.covers(self.window)
        limit = m.limits[self.full_limit]
        return limit.covers(window_number(limit.window, self.at_s))

    def to_plain(self) -> dict[str, Any]:
        """For JSON. Without what only limits need, where there is none."""
        fields = self._asdict()
        if self.full_limit is None:
            del fields["full_limit"]
        return fields


def repeat_release(release: LedgerRelease, at_s: float) -> LedgerRelease:
    """An earlier release as the answer to another report: free and untested."""
    return replace(
        release,
        at_s=at_s,
        kind=Kind.UNTESTED,
        cost=0.0,
        eps_test=0.0,
        eps_noise=0.0,
        threshold_m=None,
    )


def window_number(window: Window, at_s: float) -> int | None:
    """The number of the window of a time; None if there is one for ever."""
    numbers = window.index(np.array([at_s]))
    return None if numbers is None else int(numbers[0])
