"""Options of a mechanism, of what has one budget, and of the public files that help to spend it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import click

from hereish.cli import _units
from hereish.cli._mechanism_options import (
    MECHANISM_OPTIONS,
    MechanismOptions,
    on_exhausted_option,
    warn_if_weak,
)
from hereish.cli._options import collect, option
from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.mobility import Mobility
from hereish.core.prediction import Prediction, PredictionFunction
from hereish.core.remap import PriorRemap
from hereish.core.settings import LASTING, MechanismSettings, period_window
from hereish.core.windows import NoReset, Window
from hereish.errors import ParameterError
from hereish.mobility import load_model
from hereish.priors import parse_prior
from hereish.traces.budgets import EachTrace

if TYPE_CHECKING:
    from hereish.roads import RoadPrediction

# Points more often than that are spent for as if they came this often: tests cost the same per hour
# anyway, and larger noise throughout has only made reports worse, on made-up days and on real ones.
_FASTEST_S = 300.0
_BUDGET = "What has one budget"


@dataclass(frozen=True)
class BudgetOptions(MechanismOptions):
    """A mechanism, and what has one budget."""

    window: Literal["none", "day", "trace"]
    every: str | None
    on_exhausted: OnExhausted
    prior: str | None
    roads: str | None
    mobility_model: str | None

    @property
    def every_s(self) -> float | None:
        """The shortest interval between points that are taken; None: all are taken."""
        return None if self.every is None else _units.duration_s(self.every)

    def build(self, time_zone: str | None) -> PredictiveMechanism:
        """The mechanism, after a warning if it promises little."""
        windows: dict[str, Window] = {"none": NoReset(), "trace": EachTrace()}
        named = self.window_in_force
        window = windows.get(named) or period_window(named, time_zone or "UTC")
        settings = self._settings()
        mechanism = settings.build(window, self.on_exhausted)
        if self.roads is not None or self.prediction == "roads":
            roads = self._follow_roads(settings.accuracy_in_force_m, time_zone or "UTC")
            mechanism = replace(mechanism, prediction=roads)
        elif self.mobility_model is not None:
            mechanism = replace(mechanism, prediction=self._with_model(mechanism.prediction))
        if self.prior is not None:
            mechanism = replace(mechanism, remap=PriorRemap(parse_prior(self.prior)))
        warn_if_weak(mechanism)
        return mechanism

    def _follow_roads(self, accuracy_m: float | None, time_zone: str) -> RoadPrediction:
        if self.roads is None or self.prediction != "roads":
            given, missing = (
                ("--prediction roads", "--roads FILE")
                if self.roads is None
                else ("--roads", "--prediction roads")
            )
            raise ParameterError(f"{given} needs {missing}: add it, or leave out {given}")
        if accuracy_m is None:
            raise ParameterError(
                "--prediction roads needs --accuracy, such as 200m: releases that lie further "
                "apart than twice that show which way somebody goes"
            )
        from hereish.roads import RoadPrediction, read_roads  # here, since few need them

        towards = None
        if self.mobility_model is not None:
            towards = Mobility(time_zone=time_zone, model=load_model(self.mobility_model)).towards
        return RoadPrediction(read_roads(self.roads), 2.0 * accuracy_m, towards=towards)

    def _with_model(self, prediction: Prediction | PredictionFunction) -> Mobility:
        if not isinstance(prediction, Mobility):
            raise ParameterError(
                "--mobility-model belongs to --prediction mobility, or roads: add that"
            )
        return replace(prediction, model=load_model(str(self.mobility_model)))

    def _settings(self) -> MechanismSettings:
        settings = self.mechanism_settings()
        if self.every_s is None:
            return settings
        lasts = settings.chosen_preset in LASTING
        return replace(settings, every_s=max(self.every_s, _FASTEST_S) if lasts else self.every_s)

    def policy_settings(self, time_zone: str | None) -> dict[str, Any]:
        """The same as a policy of the gateway has it, for users whom a ledger does not know."""
        for flag, file in {"--roads": self.roads, "--mobility-model": self.mobility_model}.items():
            if file is not None:
                raise ParameterError(
                    "--add-users makes these settings the policy of new users, and a policy names "
                    f"no files: leave out {flag}, or add the users with hereish user add"
                )
        return {
            **asdict(self._settings()),
            "window": self.window_in_force,
            "time_zone": time_zone or "UTC",
            "on_exhausted": self.on_exhausted,
        }


BUDGET_OPTIONS = collect(
    "budget",
    BudgetOptions,
    MECHANISM_OPTIONS,
    option(
        _BUDGET,
        "--window",
        type=click.Choice(["none", "day", "trace"]),
        default="day",
        show_default=True,
        help="All reports of a user, those of a day, or those of a trace.",
    ),
    option(
        _BUDGET,
        "--every",
        metavar="DURATION",
        help="Take each user's points at least this far apart, such as 30min. Without it all are "
        "taken: a log with a fix every two seconds then repeats most of its reports.",
    ),
    on_exhausted_option(_BUDGET),
    option(
        _BUDGET,
        "--prior",
        metavar="world|FILE",
        help="Move fresh noise to where people are, by a public map of them: the cities of the "
        "world, or a file (.npz, .csv, .parquet, .asc, .tif). The output names it.",
    ),
    option(
        _BUDGET,
        "--roads",
        metavar="FILE",
        type=click.Path(),
        help="With --prediction roads and --accuracy: the road network to follow (.osm.pbf, .osm, "
        ".geojson, .json, .csv, .npz). Take one of an area that is known anyway, the same for "
        "everybody: it must not be chosen by where somebody is.",
    ),
    option(
        _BUDGET,
        "--mobility-model",
        metavar="FILE",
        type=click.Path(),
        help="A public model that hereish learn made. With --prediction mobility it is where that "
        "starts; with --prediction roads it is where people turn to at crossings.",
    ),
)
