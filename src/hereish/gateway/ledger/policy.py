"""A policy: the privacy promised to a user, how its budget is spent, and the report interval."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from functools import lru_cache

from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.settings import MechanismSettings
from hereish.core.windows import Day, Every, NoReset, Window
from hereish.errors import ParameterError
from hereish.forecast import outlook

DEFAULT_INTERVAL_S = 1800.0  # about 50 chances a day; a budget makes 20 to 50 reports
MIN_SILENCE_S = 3600.0  # phones that lie still report every quarter of an hour, or half
_MAX_INTERVAL_S = 7 * 86400.0
_MIN_WINDOW_S = 60.0


@dataclass(frozen=True)
class Policy(MechanismSettings):
    """One version of a user's policy. Its numbers are public."""

    window: str = "day"  # "day", "none", or a number of seconds
    time_zone: str = "UTC"
    interval_s: float = DEFAULT_INTERVAL_S
    on_exhausted: OnExhausted = "stop"

    def __post_init__(self) -> None:
        if not 0.0 <= self.interval_s <= _MAX_INTERVAL_S:
            raise ParameterError(
                "the smallest interval between reports must lie between 0 and 7 days, "
                f"found {self.interval_s!r} s"
            )

    @property
    def silence_s(self) -> float:
        """How long the primary device is silent before others count, unless set for the user."""
        return max(2.0 * self.interval_s, MIN_SILENCE_S)

    def build(
        self,
        window: Window | str | timedelta | None = None,
        on_exhausted: OnExhausted | None = None,
    ) -> PredictiveMechanism:
        """The mechanism that this policy describes, with the policy's own window."""
        Day(self.time_zone)  # days are counted in it whatever the window is
        own = self._window() if window is None else window
        return super().build(own, on_exhausted or self.on_exhausted)

    def build_checked(self) -> PredictiveMechanism:
        """As `build`, for a new policy: refuses one that could pay for a single report ever.

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
        if not _MIN_WINDOW_S <= seconds <= 1e9:
            raise ParameterError(
                "a window is day, none, or a duration of at least a minute, such as 12h; "
                f"found {self.window!r}"
            )
        return Every(timedelta(seconds=seconds))

    def to_json(self) -> str:
        """For the ledger; the same policy gives the same text."""
        settings = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps(settings, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, body: str) -> Policy:
        settings = json.loads(body)
        unknown = set(settings) - {field.name for field in fields(cls)}
        if unknown:
            raise ParameterError(
                f"the policy has {', '.join(sorted(unknown))}, which this hereish does not know; "
                "it was made by a newer one"
            )
        return cls(**settings)


@dataclass(frozen=True)
class StoredPolicy:
    """A policy as the ledger stores it, with its mechanism."""

    id: int
    version: int
    settings: Policy
    mechanism: PredictiveMechanism

    @classmethod
    def from_row(cls, policy_id: int, version: int, body: str) -> StoredPolicy:
        return cls(policy_id, version, *_parse_and_build(body))


@lru_cache(maxsize=1024)
def _parse_and_build(body: str) -> tuple[Policy, PredictiveMechanism]:
    """Cached: many users share few policies."""
    settings = Policy.from_json(body)
    return settings, settings.build()
