"""The guarantee as the metadata of an output: public settings, and a sentence that states it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import Draws, KeyedDraws
from hereish.core.session import NOT_PRIVATE
from hereish.core.windows import Day, NoReset
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.order import Order, qualify_guarantee

# What follows is the name of the prior.
PRIOR_NOTE = "Fresh noise was moved by a public prior: "
_WINDOWS = {NoReset: "none", Day: "day", EachTrace: "trace"}


@dataclass(frozen=True)
class GuaranteeMetadata:
    """What is guaranteed for the rows of an output. All of it is public."""

    statement: str  # a sentence
    private: bool = True
    eps_per_m: float | None = None  # the budget of a window
    window: str = "none"  # none, day or trace
    time_zone: str | None = None  # in which days begin
    prior: str | None = None  # the name of the public prior that has moved fresh noise

    @property
    def description(self) -> str:
        """The statement, and what else a reader should know of the places."""
        return describe_prior(self.statement, self.prior)

    def as_dict(self) -> dict[str, Any]:
        """The settings as files have them; there is a prior only where one was used."""
        settings = {
            "guarantee": self.statement,
            "private": self.private,
            "eps_per_m": self.eps_per_m,
            "window": self.window,
            "time_zone": self.time_zone,
        }
        return settings if self.prior is None else settings | {"prior": self.prior}

    @classmethod
    def from_dict(cls, settings: object) -> GuaranteeMetadata | None:
        """The opposite of `as_dict`; None for anything that it cannot have returned."""
        types: dict[str, tuple[type, ...]] = {
            "guarantee": (str,),
            "private": (bool,),
            "eps_per_m": (float, type(None)),
            "window": (str,),
            "time_zone": (str, type(None)),
        }
        if not isinstance(settings, dict):
            return None
        if "prior" in settings:
            types["prior"] = (str,)
        if settings.keys() != types.keys():
            return None
        if not all(isinstance(settings[name], allowed) for name, allowed in types.items()):
            return None
        eps = settings["eps_per_m"]
        if eps is not None and not 0.0 < eps < math.inf:
            return None
        return cls(*(settings[name] for name in types))


def describe_prior(statement: str, prior: str | None) -> str:
    """A statement of the guarantee, followed by the prior's name if one was used."""
    return statement if prior is None else f"{statement} {PRIOR_NOTE}{prior}"


def prior_name(mechanism: PredictiveMechanism) -> str | None:
    """The prior that moves fresh noise. Public, and of one line."""
    return None if mechanism.remap is None else " ".join(mechanism.remap.name.split())


def describe_guarantee(
    mechanism: PredictiveMechanism, draws: Draws | KeyedDraws, columns: Columns, order: Order
) -> GuaranteeMetadata:
    """What sanitising with this mechanism guarantees."""
    window = mechanism.window
    zone = None if columns.zone is None else columns.zone.key
    statement = mechanism.guarantee_for_each("user") if draws.private else NOT_PRIVATE
    return GuaranteeMetadata(
        statement=qualify_guarantee(statement, order),
        private=draws.private and mechanism.private,
        eps_per_m=mechanism.privacy.eps_per_m,
        window=_WINDOWS.get(type(window), window.covers()),
        time_zone=window.time_zone if isinstance(window, Day) else zone,
        prior=prior_name(mechanism),
    )
