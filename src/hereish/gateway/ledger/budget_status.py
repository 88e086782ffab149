"""What was spent of a user's windows, and what jobs have taken of them. Public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from hereish.core.accounting import SecondPromise, level_so_far, second_promise
from hereish.core.budget import AlwaysNoise
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.run import Run
from hereish.gateway.ledger.limit_charges import Span


class LimitStatus(NamedTuple):
    """What was spent of the budget of a limit. Public."""

    window: str
    level: float
    spent: float
    total: float
    by_jobs: float  # of what was spent, beside reports: by jobs, by an earlier policy, or unseen

    @property
    def remaining(self) -> float:
        return max(0.0, self.total - self.spent)

    @property
    def is_full(self) -> bool:
        """Whether no report can be paid from it: less than a quantum or so is left."""
        return self.remaining <= 1e-9 * self.total

    @property
    def share(self) -> float:
        """What part of it is spent."""
        return self.spent / self.total


class BudgetStatus(NamedTuple):
    """What was spent of a window's budget. Public."""

    spent: float
    total: float
    window: str
    reports: int
    exhausted: bool
    closed: bool  # by a restore: what is left of it will not be spent
    by_jobs: float = 0.0  # of what was spent: by jobs, or reserved for them
    limits: tuple[LimitStatus, ...] = ()  # the windows beside this one, in the policy's order

    @property
    def remaining(self) -> float:
        return 0.0 if self.closed else self.total - self.spent


class SecondStatus(NamedTuple):
    """What the reports of a window lose together, with a small delta. Public."""

    promise: SecondPromise  # of all reports that the window can have
    level_so_far: float  # of those that it has had

    @classmethod
    def of(cls, m: PredictiveMechanism, run: Run, budget: BudgetStatus) -> SecondStatus | None:
        """That of the window that the run is in; None where only the first promise is made.

        What was released must be all that the window has seen, independent noise of one cost each:
        jobs release from the same budget, and a window that a restore has closed may have had
        reports that nobody knows of. How many there are follows from public times.
        """
        if budget.by_jobs or budget.closed or not isinstance(m.budget, AlwaysNoise):
            return None
        noisy = int(run.hard[0])
        promise, so_far = second_promise(m), level_so_far(m, noisy)
        costs = noisy * float(m.bound.quantised(m.budget.eps_noise))
        if promise is None or so_far is None or budget.spent != costs:
            return None
        return cls(promise, so_far)


class JobCharges(NamedTuple):
    """What jobs have taken of a user's budgets: spent, or reserved as long as they run. Public."""

    reserved_s: float | None = None  # the end of the latest window that a job has reserved
    by_window: Mapping[int | None, float] = MappingProxyType({})  # of the policy in force
    spans: Sequence[Span] = ()  # of all policies, where there are limits

    def extended(self, span: Span) -> JobCharges:
        """The same when so much of a window is reserved, too."""
        end_s = max(span.last_s, self.reserved_s or -math.inf)
        return self._replace(reserved_s=end_s, spans=(*self.spans, span))
