"""A policy: the privacy promised to a user, how its budget is spent, and the report interval."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import lru_cache

from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.privacy import positive
from hereish.core.settings import (
    NUMBERS,
    PRESETS,
    MechanismSettings,
    period_window,
    with_numbers,
)
from hereish.core.windows import Day, Every, Limit, Nested, NoReset, Window
from hereish.errors import ParameterError
from hereish.forecast import outlook

DEFAULT_INTERVAL_S = 1800.0  # about 50 chances a day
# How often a phone reports where no interval holds it back: some a minute, most every few minutes.
UNLIMITED_EVERY_S = 300.0
MIN_SILENCE_S = 3600.0  # phones that lie still report every quarter of an hour, or half
_MAX_INTERVAL_S = 7 * 86400.0
_MIN_WINDOW_S = 60.0


@dataclass(frozen=True)
class Policy(MechanismSettings):
    """One version of a user's policy. Its numbers are public.

    With neither an accuracy nor a number of reports, nor a preset, its budget lasts the day.
    """

    window: str = "day"  # "day", "none", or a number of seconds
    time_zone: str = "UTC"
    interval_s: float = DEFAULT_INTERVAL_S
    on_exhausted: OnExhausted = "stop"

    def __post_init__(self) -> None:
        if self.limits is not None:  # JSON has lists
            limits = tuple((str(period), float(level)) for period, level in self.limits)
            object.__setattr__(self, "limits", limits or None)
        if not 0.0 <= self.interval_s <= _MAX_INTERVAL_S:
            raise ParameterError(
                "the smallest interval between reports must lie between 0 and 7 days, "
                f"found {self.interval_s!r} s"
            )

    @property
    def silence_s(self) -> float:
        """How long the primary device is silent before others count, unless set for the user."""
        return max(2.0 * self.interval_s, MIN_SILENCE_S)

    @property
    def expected_every_s(self) -> float:
        """How often reports will come: once per interval, for phones report more often."""
        return self.interval_s or self.every_s or UNLIMITED_EVERY_S

    def build(
        self,
        window: Window | str | timedelta | None = None,
        on_exhausted: OnExhausted | None = None,
    ) -> PredictiveMechanism:
        """The mechanism that this policy describes, with the policy's own window."""
        Day(self.time_zone)  # days are counted in it whatever the window is
        own = self._nested(self._window()) if window is None else window
        paced = replace(self, every_s=self._paced_every_s, limits=None)
        return MechanismSettings.build(paced, own, on_exhausted or self.on_exhausted)

    @property
    def _paced_every_s(self) -> float:
        return self.expected_every_s if self.every_s is None else self.every_s

    def with_preset_numbers(self) -> Policy:
        """The same with the numbers and the accuracy of its preset written out, as it is stored.

        A later hereish may have better numbers; it still builds what was promised and begun.
        """
        preset = self.chosen_preset
        if preset not in NUMBERS:
            return self
        numbers = with_numbers(NUMBERS[preset], self.numbers or {})
        return replace(
            self,
            preset=preset,
            accuracy_m=self.accuracy_in_force_m,
            every_s=self._paced_every_s,
            numbers=asdict(numbers),
        )

    def describe(self) -> str:
        """How the budget is spent, in words."""
        preset = self.chosen_preset
        aims = []
        if self.reports is not None:
            aims.append(f"about {self.reports} reports")
        far = self.accuracy_in_force_m
        if far is not None:
            aims.append(f"{far / 1000:.3g} km" if far >= 1000 else f"{far:.0f} m")
        if self.prediction is not None:
            aims.append(f"guesses by {self.prediction}")
        if preset is None:
            return ", ".join([self.mechanism, *aims])
        phrases = [f"{preset} ({PRESETS[preset]})", *aims]
        if preset in NUMBERS and self.with_preset_numbers().numbers != asdict(NUMBERS[preset]):
            phrases.append("with numbers of its own")
        if self.quiet is not None:
            phrases.append(f"no tests from {' to '.join(self.quiet.split('-'))}")
        return ", ".join(phrases)

    def build_checked(self) -> PredictiveMechanism:
        """As `build`, for a new policy: refuses one that could pay for a single report ever.

        The first report ever has no guess to test. All others need room for test and noise, unless
        the noise comes first: then it is all that a report costs, and `build` has made sure of it.
        """
        mechanism = self.build()
        if mechanism.own_decision is NoiseFirst:
            return mechanism
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

    def _nested(self, first: Window) -> Window:
        """The window with the limits beside it, all in the policy's time zone."""
        nested = Nested(first)
        known = [first]
        for period, level in self.limits or ():
            window = period_window(period, self.time_zone)
            if isinstance(first, NoReset) or window in known:
                raise ParameterError(
                    f"the budget per {period} has no place beside the others: each is of another "
                    "window, and the first is the shortest (--budget 'ln 10/day' --budget 'ln "
                    "1000/month')"
                )
            known.append(window)
            nested = nested & Limit(window, positive(f"the level per {period}", level))
        return nested if nested.limits else first

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
        if settings.get("numbers"):  # of before anything was too fine: places got ever more exact
            settings["numbers"] = {
                "finest": 0.0,
                "finest_noise": 0.0,
                "night": 0.0,
                **settings["numbers"],
            }
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
