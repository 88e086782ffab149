"""A policy: what is promised to a user, how it is spent, and how often a phone is listened to."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal

from hereish.core.mechanism import (
    OnExhausted,
    PredictiveMechanism,
    fixed_rate,
    fixed_utility,
    independent,
)
from hereish.core.privacy import Privacy
from hereish.core.skip import SkipBySpeed
from hereish.core.windows import Day, Every, NoReset, Window
from hereish.errors import ParameterError
from hereish.forecast import outlook

DEFAULT_INTERVAL_S = 1800.0  # about 50 chances a day; a budget makes 20 to 50 reports
SHORTEST_SILENCE_S = 3600.0  # phones that lie still report every quarter of an hour, or half
_LONGEST_INTERVAL_S = 7 * 86400.0
_SHORTEST_WINDOW_S = 60.0


@dataclass(frozen=True)
class Policy:
    """One version of a user's policy. Its numbers are public."""

    level: float
    radius_m: float
    accuracy_m: float | None = None
    reports: int | None = None
    mechanism: Literal["predictive", "independent"] = "predictive"
    window: str = "day"  # "day", "none", or a number of seconds
    time_zone: str = "UTC"
    interval_s: float = DEFAULT_INTERVAL_S
    on_exhausted: OnExhausted = "stop"
    eta: float | None = None
    gamma: float | None = None
    prediction_rate: float | None = None
    skip_kmh: float | None = None
    skip_limit_m: float | None = None
    skip_since: Literal["hard", "tested"] = "hard"

    def __post_init__(self) -> None:
        if not 0.0 <= self.interval_s <= _LONGEST_INTERVAL_S:
            raise ParameterError(
                "the smallest interval between reports must lie between 0 and 7 days, "
                f"found {self.interval_s!r} s"
            )

    @property
    def silence_s(self) -> float:
        """How long the primary device is silent before others count, unless a user has another."""
        return max(2.0 * self.interval_s, SHORTEST_SILENCE_S)

    def build(self) -> PredictiveMechanism:
        """The mechanism that it describes; says what is wrong with it if it describes none."""
        Day(self.time_zone)  # days are counted in it whatever the window is
        privacy = Privacy(self.level, self.radius_m)
        common: dict[str, Any] = {"window": self._window(), "on_exhausted": self.on_exhausted}
        if (self.accuracy_m is None) == (self.reports is None):
            raise ParameterError("a policy has either an accuracy or a number of reports")
        if self.mechanism == "independent":
            if self.skip_kmh is not None:
                raise ParameterError("a skip spares tests, and independent noise has none")
            return independent(privacy, reports=self.reports, accuracy_m=self.accuracy_m, **common)
        for name in ("eta", "gamma", "prediction_rate"):
            if getattr(self, name) is not None:
                common[name] = getattr(self, name)
        if self.skip_kmh is not None:
            common["skip"] = SkipBySpeed(self.skip_kmh, self.skip_limit_m, self.skip_since)
        if self.accuracy_m is not None:
            return fixed_utility(privacy, self.accuracy_m, **common)
        return fixed_rate(privacy, self.reports or 0, **common)

    def fit(self) -> PredictiveMechanism:
        """As `build`, for a new policy: refuses one that would pay for one report in its life.

        The first report ever has no guess to test. All others need room for test and noise.
        """
        mechanism = self.build()
        first = outlook(mechanism)
        needed = first.cost_of_noise + first.cost_of_test
        if needed > 1.0:
            better = f"{math.ceil((self.accuracy_m or 0.0) * needed)} m or more"
            raise ParameterError(
                "the budget has room for one report like this, but not for the test that all but "
                "the first one ever begin with; ask for "
                f"{better if self.accuracy_m else 'more reports'}, for less privacy, or for "
                "independent noise (--mechanism independent)"
            )
        return mechanism

    def _window(self) -> Window:
        if self.window == "day":
            return Day(self.time_zone)
        if self.window == "none":
            return NoReset()
        try:
            seconds = float(self.window)
        except ValueError:
            seconds = 0.0
        if not _SHORTEST_WINDOW_S <= seconds <= 1e9:
            raise ParameterError(
                "a window is day, none, or a duration of at least a minute, such as 12h; "
                f"found {self.window!r}"
            )
        return Every(timedelta(seconds=seconds))

    def to_json(self) -> str:
        """For the ledger; the same policy gives the same text."""
        told = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps(told, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, body: str) -> Policy:
        told = json.loads(body)
        unknown = set(told) - {field.name for field in fields(cls)}
        if unknown:
            raise ParameterError(
                f"the policy has {', '.join(sorted(unknown))}, which this hereish does not know; "
                "it was made by a newer one"
            )
        return cls(**told)


@dataclass(frozen=True)
class Rules:
    """A policy in force, with its mechanism."""

    id: int
    version: int
    policy: Policy
    mechanism: PredictiveMechanism


@lru_cache(maxsize=1024)
def mechanism_of(body: str) -> tuple[Policy, PredictiveMechanism]:
    """A policy of the ledger and its mechanism; many users share few policies."""
    policy = Policy.from_json(body)
    return policy, policy.build()
