"""The guarantee as the metadata of an output: public settings, and a sentence that states it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from hereish.core.accounting import SecondPromise, second_promise
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import Draws, KeyedDraws
from hereish.core.session import NOT_PRIVATE
from hereish.core.windows import Day, NoReset
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.order import Order, qualify_guarantee

# What follows is the name of the prior.
PRIOR_NOTE = "Fresh noise was moved by a public prior: "
# What settings of a file have only where it was used, and as what.
_WHERE_USED: dict[str, tuple[type, ...]] = {"prior": (str,), "every_s": (float,)}
_OF_SECOND = ("guarantee_at_delta", "level_at_delta", "delta")  # all of them, or none
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
    every_s: float | None = None  # points that came sooner after the one before were left out
    second: SecondPromise | None = None  # what holds besides, with a small delta

    @property
    def description(self) -> str:
        """The statement, and what else a reader should know of the places."""
        return describe_prior(self.statement, self.prior)

    def as_dict(self) -> dict[str, Any]:
        """The settings as files have them; those that not all have only where they were used."""
        settings: dict[str, Any] = {
            "guarantee": self.statement,
            "private": self.private,
            "eps_per_m": self.eps_per_m,
            "window": self.window,
            "time_zone": self.time_zone,
        }
        used = {name: getattr(self, name) for name in _WHERE_USED}
        settings |= {name: value for name, value in used.items() if value is not None}
        if self.second is not None:
            second = (self.second.statement, self.second.level, self.second.delta)
            settings |= dict(zip(_OF_SECOND, second, strict=True))
        return settings

    @classmethod
    def from_json(cls, text: str | bytes) -> GuaranteeMetadata | None:
        """The same as `from_dict` of a text that a file holds, whatever it is."""
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, TypeError, RecursionError):
            return None

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
        types |= {name: allowed for name, allowed in _WHERE_USED.items() if name in settings}
        if settings.keys() - set(_OF_SECOND) != types.keys():
            return None
        if not all(isinstance(settings[name], allowed) for name, allowed in types.items()):
            return None
        for name in ("eps_per_m", "every_s"):
            number = settings.get(name)
            if number is not None and not 0.0 < number < math.inf:
                return None
        given = {name: settings[name] for name in types if name != "guarantee"}
        return cls(settings["guarantee"], **given, second=_as_second_promise(settings))


def _as_second_promise(settings: dict[Any, Any]) -> SecondPromise | None:
    """The second promise among the settings; None if there is none that makes sense."""
    statement, level, delta = map(settings.get, _OF_SECOND)
    if not (isinstance(statement, str) and isinstance(level, float) and isinstance(delta, float)):
        return None
    makes_sense = 0.0 < level < math.inf and 0.0 < delta < 1.0
    return SecondPromise(level, delta, statement) if makes_sense else None


def describe_prior(statement: str, prior: str | None) -> str:
    """A statement of the guarantee, followed by the prior's name if one was used."""
    return statement if prior is None else f"{statement} {PRIOR_NOTE}{prior}"


def prior_name(mechanism: PredictiveMechanism) -> str | None:
    """The prior that moves fresh noise. Public, and of one line."""
    return None if mechanism.remap is None else " ".join(mechanism.remap.name.split())


def describe_guarantee(
    mechanism: PredictiveMechanism,
    draws: Draws | KeyedDraws,
    columns: Columns,
    order: Order,
    every_s: float | None = None,
    shares_budgets: bool = False,
) -> GuaranteeMetadata:
    """What sanitising with this mechanism guarantees, with points taken so far apart.

    Where budgets are shared with others, nothing is said of what all of it loses with a delta.
    """
    window = mechanism.window
    zone = None if columns.zone is None else columns.zone.key
    statement = mechanism.guarantee_for_each("user") if draws.private else NOT_PRIVATE
    alone = draws.private and not shares_budgets and order == "public"
    return GuaranteeMetadata(
        statement=qualify_guarantee(statement, order),
        private=draws.private and mechanism.private,
        eps_per_m=mechanism.privacy.eps_per_m,
        window=_WINDOWS.get(type(window), window.covers()),
        time_zone=window.time_zone if isinstance(window, Day) else zone,
        prior=prior_name(mechanism),
        every_s=None if every_s is None else float(every_s),
        second=second_promise(mechanism, each="user") if alone else None,
    )
