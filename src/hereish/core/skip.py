"""When to skip the test: rules on public data alone.

A skip rule is called `(run, at_s, plan) -> bool per lane`. Where it says True the guess is
released untested and free. Without a guess there is nothing to skip to: noise is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from hereish.core.budget import Plan
from hereish.core.privacy import positive
from hereish.core.run import Run
from hereish.core.types import Bools, Floats
from hereish.errors import ParameterError, PartError


class SkipRule(Protocol):
    """True in the lanes whose guess may be released untested."""

    @property
    def needs_history(self) -> bool:
        """Whether it looks at `hard_at_s`, `hard_threshold` or `tested_at_s` of the run."""
        ...

    def __call__(self, run: Run, at_s: Floats, plan: Plan, /) -> Bools:
        """Which lanes release their guess without a test."""
        ...


SkipFunction: TypeAlias = Callable[[Run, Floats, Plan], Bools]


@dataclass(frozen=True)
class FunctionSkipRule:
    """A plain function as a skip rule, with what it declares. Made by `skip_rule`."""

    function: SkipFunction
    needs_history: bool = True

    def __call__(self, run: Run, at_s: Floats, plan: Plan, /) -> Bools:
        return self.function(run, at_s, plan)


def skip_rule(function: SkipFunction, *, needs_history: bool = True) -> FunctionSkipRule:
    """A skip rule from `function(run, at_s, plan) -> bool per lane`."""
    return FunctionSkipRule(function, needs_history)


@dataclass(frozen=True)
class SkipBySpeed:
    """Skips while somebody at `kmh` could not have gone further than the limit.

    The clock starts at the last hard release, or with `since="tested"` at the last release on
    which the secret had a say: a passed test starts it again. The limit is `limit_m`, or if that
    is not given what the budget manager says (section 4: the accuracy for fixed utility, 0.8 of
    the last hard step's threshold for fixed rate, which therefore skips nothing before a hard
    report that went through the test).

    The paper's text says 0.5 km/h and its program computed 0.5 km per minute; 30 km/h gives its
    results.
    """

    kmh: float = 30.0
    limit_m: float | None = None
    since: Literal["hard", "tested"] = "hard"
    needs_history = True

    def __post_init__(self) -> None:
        positive("kmh", self.kmh)
        if self.limit_m is not None:
            positive("limit_m", self.limit_m)
        if self.since not in ("hard", "tested"):
            raise ParameterError(f"since must be 'hard' or 'tested', found {self.since!r}")

    def __call__(self, run: Run, at_s: Floats, plan: Plan, /) -> Bools:
        limit = plan.skip_limit if self.limit_m is None else self.limit_m
        if limit is None:
            raise PartError(
                "SkipBySpeed needs a limit and this budget manager gives none; "
                "pass SkipBySpeed(limit_m=…) or put skip_limit into the manager's Plan"
            )
        since = run.hard_at_s if self.since == "hard" else run.tested_at_s
        return np.asarray((self.kmh / 3.6) * (at_s - since) <= limit)
