"""What the study asks of every mechanism, and the mechanisms that this describes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hereish.core.privacy import Privacy
from hereish.core.settings import MechanismSettings

Manager = Literal["fixed_rate", "fixed_utility"]
MANAGERS: tuple[Manager, ...] = ("fixed_rate", "fixed_utility")


@dataclass(frozen=True)
class StudySettings:
    """The promise and the goals of the study. The defaults are the paper's."""

    privacy: Privacy = Privacy(math.log(10), 100)  # noqa: RUF009  # frozen, safe to share
    accuracy_m: float = 3000.0
    reports: int = 30
    skip_kmh: float = 30.0
    as_published: bool = False

    def describe(
        self,
        manager: Manager,
        mechanism: Literal["predictive", "independent"] = "predictive",
        *,
        skip: bool = False,
    ) -> MechanismSettings:
        """The mechanism with this budget manager: an accuracy, or a number of reports."""
        utility = manager == "fixed_utility"
        return MechanismSettings(
            self.privacy.level,
            self.privacy.radius_m,
            accuracy_m=self.accuracy_m if utility else None,
            reports=None if utility else self.reports,
            mechanism=mechanism,
            skip_kmh=self.skip_kmh if skip else None,
        )
