"""What a user asks for: a level of indistinguishability inside a radius."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hereish.errors import ParameterError

# Beyond these the quantum of `budget.Bound` or the noise itself would leave the range of doubles.
_SMALLEST_EPS, _LARGEST_EPS = 1e-200, 1e200


def positive(name: str, value: float) -> float:
    """`value` as a float, or an error that names the parameter."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{name} must be a number, found {value!r}") from None
    if not (math.isfinite(number) and number > 0):
        raise ParameterError(f"{name} must be a finite number above 0, found {value!r}")
    return number


@dataclass(frozen=True)
class Privacy:
    """Whatever is released is at most `exp(level)` times as likely from one trace as from another
    that is never more than `radius_m` away from it.

    The whole budget of a window. Twice as far away, twice the level; half as far, half of it.
    """

    level: float
    radius_m: float

    def __post_init__(self) -> None:
        positive("level", self.level)
        positive("radius_m", self.radius_m)
        if not _SMALLEST_EPS <= self.eps_per_m <= _LARGEST_EPS:
            raise ParameterError(
                f"level / radius_m must lie between {_SMALLEST_EPS} and {_LARGEST_EPS}, "
                f"found {self.eps_per_m!r}"
            )

    @property
    def eps_per_m(self) -> float:
        """The budget: privacy loss per metre between two secrets."""
        return self.level / self.radius_m

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, unit: str = "m") -> str:
        """What is promised, where distances are measured in this unit."""
        return (
            f"whatever is released is at most {math.exp(min(self.level, 700.0)):.4g} times as "
            f"likely from one trace as from any other that stays within {self.radius_m:g} {unit} "
            "of it"
        )


def check_one_report_fits(privacy: Privacy, c_noise: float, accuracy: float) -> None:
    """Refuse an accuracy of which the whole budget does not pay for one report."""
    if c_noise / accuracy > privacy.eps_per_m:
        raise ParameterError(
            f"one report of accuracy {accuracy:g} m costs {c_noise / accuracy:.4g} per metre and "
            f"the whole budget is {privacy.eps_per_m:.4g} per metre; ask for "
            f"{c_noise / privacy.eps_per_m:.4g} m or more, or for less privacy"
        )
