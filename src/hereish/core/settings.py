"""A mechanism described by plain values, as options, files and the gateway's policies have it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from hereish.core.mechanism import (
    OnExhausted,
    PredictiveMechanism,
    check_accuracy_or_reports,
    fixed_rate,
    fixed_utility,
    independent,
)
from hereish.core.privacy import Privacy
from hereish.core.skip import SkipBySpeed
from hereish.core.windows import Window
from hereish.errors import ParameterError


@dataclass(frozen=True)
class MechanismSettings:
    """What is promised and how it is spent; `build` makes the mechanism.

    Give an accuracy or a number of reports. What is None is left to the mechanism's own defaults.
    """

    level: float
    radius_m: float
    accuracy_m: float | None = None
    reports: int | None = None
    mechanism: Literal["predictive", "independent"] = "predictive"
    eta: float | None = None
    gamma: float | None = None
    prediction_rate: float | None = None
    skip_kmh: float | None = None  # None: no test is skipped
    skip_limit_m: float | None = None
    skip_since: Literal["hard", "tested"] = "hard"

    @property
    def privacy(self) -> Privacy:
        """What is promised, whatever the other numbers are."""
        return Privacy(self.level, self.radius_m)

    def build(
        self,
        window: Window | str | timedelta | None = None,
        on_exhausted: OnExhausted = "stop",
    ) -> PredictiveMechanism:
        """The mechanism that this describes; says what is wrong if it describes none."""
        check_accuracy_or_reports(self.accuracy_m, self.reports)
        given: dict[str, Any] = {"window": window, "on_exhausted": on_exhausted}
        if self.mechanism == "independent":
            if self.skip_kmh is not None:
                raise ParameterError(
                    "a skip speed (--skip-speed) skips tests, and independent noise has none"
                )
            return independent(
                self.privacy, reports=self.reports, accuracy_m=self.accuracy_m, **given
            )
        for name in ("eta", "gamma", "prediction_rate"):
            if getattr(self, name) is not None:
                given[name] = getattr(self, name)
        if self.skip_kmh is not None:
            given["skip"] = SkipBySpeed(self.skip_kmh, self.skip_limit_m, self.skip_since)
        if self.accuracy_m is not None:
            return fixed_utility(self.privacy, self.accuracy_m, **given)
        return fixed_rate(self.privacy, self.reports or 0, **given)
