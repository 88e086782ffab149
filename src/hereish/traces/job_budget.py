"""A job that pays from budgets which it shares with other jobs and with a gateway.

What the job may spend is reserved before it reads a place, and what it has spent is paid before
anybody sees its output. Which users and windows it asks for are public, and so are the answers.
`hereish.gateway.ledger.jobs` has the ledger that keeps the budgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.renyi import refuse_delta
from hereish.core.types import Floats
from hereish.errors import ParameterError
from hereish.traces.budgets import EachTrace


class UserWindow(NamedTuple):
    """A window of a user in which a job has points."""

    user: str  # by the canonical name
    window: int  # its number by the mechanism's window; 0 if there is one for ever
    at_s: float  # the time of a point in it


class WindowCost(NamedTuple):
    """What a job has spent in a window of a user."""

    user: str
    window: int
    cost: float


class JobBudget(Protocol):
    """What a job reserves and pays."""

    def reserve(self, windows: Sequence[UserWindow]) -> Floats:
        """What may be spent in each; 0 where nothing is left. The same again if asked again."""
        ...

    def settle(self, costs: Iterable[WindowCost], digest: bytes | None = None) -> None:
        """Pay what was spent, and return the rest. Call this before anything is published.

        Windows that are not named have spent nothing. `digest` is one of all that is released: a
        job that has been settled may settle again with the same digest, since what it publishes
        was published before. Raises JobError otherwise; then nothing may be published.
        """
        ...


def check_shared_budget(mechanism: PredictiveMechanism) -> None:
    """Refuse a mechanism that cannot share its budgets with others."""
    refuse_delta(mechanism.privacy, "a ledger is")
    if isinstance(mechanism.window, EachTrace):
        raise ParameterError(
            "a ledger has one budget per user and window, and none per trace: choose a window of "
            "time (--window day)"
        )
    if mechanism.limiter is not None:
        raise ParameterError(
            "a job has a budget for one window, and keeps within the further ones of each user's "
            "policy by itself: leave out its own limits (all but the first --budget)"
        )
