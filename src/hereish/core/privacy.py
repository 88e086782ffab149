"""What a user asks for: a level of indistinguishability inside a radius."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hereish.errors import ParameterError

# Beyond these the quantum of `budget.Bound` or the noise itself would leave the range of doubles.
_SMALLEST_EPS, _LARGEST_EPS = 1e-200, 1e200
_SMALLEST_DELTA = 1e-100
_LARGEST_LEVEL = 700.0  # whose exponential is a double


def positive(name: str, value: float) -> float:
    """`value` as a float, or an error that names the parameter."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{name} must be a number, found {value!r}") from None
    if not (math.isfinite(number) and number > 0):
        raise ParameterError(f"{name} must be a finite number above 0, found {value!r}")
    return number


def spoken_factor(level: float) -> str:
    """How many times as likely, for people."""
    return f"{math.exp(level):.4g}" if level <= _LARGEST_LEVEL else f"e^{level:g}"


@dataclass(frozen=True)
class Privacy:
    """Whatever is released is at most `exp(level)` times as likely from one trace as from another
    that is never more than `radius_m` away from it.

    The whole budget of a window. Twice as far away, twice the level; half as far, half of it.

    With a `delta` any set of outcomes is as much more likely and that probability besides, for
    every two traces that are fixed before anything is released: (level, delta)-differential privacy
    inside the radius, and nothing is said beyond it. The budget is then enforced in these terms, by
    a filter (renyi.proof.md).
    """

    level: float
    radius_m: float
    delta: float | None = None

    def __post_init__(self) -> None:
        for name in ("level", "radius_m"):
            # A narrower number would round the sums that are compared with it, and a whole one have
            # another fingerprint: a job that is repeated with it would be a second release.
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        if self.delta is not None:
            delta = positive("delta", self.delta)
            if not _SMALLEST_DELTA <= delta < 1.0:
                raise ParameterError(
                    f"delta must be at least {_SMALLEST_DELTA:g} and below 1, found {self.delta!r}"
                )
            object.__setattr__(self, "delta", delta)
        if not _SMALLEST_EPS <= self.eps_per_m <= _LARGEST_EPS:
            raise ParameterError(
                f"level / radius_m must lie between {_SMALLEST_EPS} and {_LARGEST_EPS}, "
                f"found {self.eps_per_m!r}"
            )

    @property
    def eps_per_m(self) -> float:
        """The budget: privacy loss per metre between two secrets."""
        return self.level / self.radius_m

    def __repr__(self) -> str:
        # As it was before there was a delta: saved states are known by it.
        delta = "" if self.delta is None else f", delta={self.delta!r}"
        return f"Privacy(level={self.level!r}, radius_m={self.radius_m!r}{delta})"

    def __str__(self) -> str:
        return self.sentence()

    def sentence(self, unit: str = "m") -> str:
        """What is promised, where distances are measured in this unit."""
        times = f"at most {spoken_factor(self.level)} times as likely from one trace as from any"
        near = f"other that stays within {self.radius_m:g} {unit} of it"
        if self.delta is None:
            return f"whatever is released is {times} {near}"
        # Of sets: a single outcome may be more telling with a probability above delta.
        return (
            f"any set of outcomes is {times} one {near} and was chosen before anything was "
            f"released, plus a probability of {self.delta:.2g} "
            "((epsilon, delta)-differential privacy)"
        )


def check_one_report_fits(privacy: Privacy, c_noise: float, accuracy: float) -> None:
    """Refuse an accuracy of which the whole budget does not pay for one report."""
    if c_noise / accuracy > privacy.eps_per_m:
        raise ParameterError(
            f"one report of accuracy {accuracy:g} m costs {c_noise / accuracy:.4g} per metre and "
            f"the whole budget is {privacy.eps_per_m:.4g} per metre; ask for "
            f"{c_noise / privacy.eps_per_m:.4g} m or more, or for less privacy"
        )
