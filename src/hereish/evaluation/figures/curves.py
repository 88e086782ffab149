"""The rows of the study as curves over p, with the claims of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hereish.core.types import Floats
from hereish.evaluation.figures.style import BLUE, GREEN, RED
from hereish.evaluation.study import Row
from hereish.evaluation.study_settings import Manager, StudySettings

# In the order of the legend; what else the study measures is in its table only.
MECHANISMS = ("predictive", "independent", "repeat")


class Series(NamedTuple):
    """A measured number that is drawn over p."""

    name: str  # as in the rows
    label: str
    color: str
    unit: float = 1.0  # of the axis


GENERAL = (
    Series("prediction_rate", "predicted", BLUE),
    Series("test_share", "budget\nfor tests", RED),
    Series("skipped_share", "test\nskipped", GREEN),
)
ERRORS = (
    Series("error_mean_m", "average", BLUE, 1000.0),
    Series("error_p90_m", "90th\npercentile", RED, 1000.0),
)
RATE = Series("rate", "", BLUE)


@dataclass(frozen=True)
class PaperClaims:
    """Claims of the paper, and the cost and error of independent noise in its settings."""

    setting: str
    independent_rate: float
    independent_mean_m: float
    better_m: dict[str, tuple[float, float]]  # than independent noise, without skip
    down_to: dict[bool, float]  # the rate, without and with skip


PAPER: dict[Manager, PaperClaims] = {
    "fixed_rate": PaperClaims(
        "30 reports",
        1.0 / 30.0,
        2606.0,
        {"error_mean_m": (500.0, 700.0), "error_p90_m": (1300.0, 1900.0)},
        {},
    ),
    "fixed_utility": PaperClaims("3 km", 0.0563, 1543.0, {}, {False: 0.041, True: 0.02}),
}


@dataclass(frozen=True)
class Curves:
    """The rows of one figure: a configuration, and those that it is compared with."""

    manager: Manager
    skip: bool
    rows: dict[str, list[Row]]  # by mechanism, by rising p

    @classmethod
    def of(cls, rows: Iterable[Row], manager: Manager, skip: bool) -> Curves:
        own: dict[str, list[Row]] = {mechanism: [] for mechanism in MECHANISMS}
        for row in rows:
            skips = skip and row["mechanism"] == "predictive"
            if row["mechanism"] in own and (row["manager"], row["skip"]) == (manager, skips):
                own[row["mechanism"]].append(row)
        for some in own.values():
            some.sort(key=lambda row: (row["p"] is None, row["p"] or 0.0))
        return cls(manager, skip, own)

    def values(self, mechanism: str, series: Series, end: str = "") -> Floats:
        """In the unit of the axis; NaN where nothing is known."""
        found = [row[series.name + end] for row in self.rows[mechanism]]
        return np.array([np.nan if v is None else v / series.unit for v in found], dtype=np.float64)

    def known(self, lines: Sequence[Series]) -> bool:
        return any(np.isfinite(self.values("predictive", series)).any() for series in lines)

    def last(self, mechanism: str, series: Series) -> float | None:
        """The value at the end of the curve, where its label is."""
        values = self.values(mechanism, series)
        found = values[np.isfinite(values)].tolist()
        return found[-1] if found else None

    @property
    def single(self) -> bool:
        """Whether there is only one p, so that points are drawn and no lines."""
        return len({row["p"] for row in self.rows["predictive"]}) == 1

    def x(self, mechanism: str) -> Floats:
        """p, or the place of the mechanism if there is only one p. An unknown p is last."""
        some = self.rows[mechanism]
        if self.single:
            return np.full(len(some), float(MECHANISMS.index(mechanism)))
        beside = max((row["p"] for row in some if row["p"] is not None), default=0.0) + 0.15
        return np.array([beside if row["p"] is None else row["p"] for row in some])

    def stretches(self, mechanism: str) -> list[slice]:
        """The rows that a line may join: an unknown p is not next to any."""
        some = self.rows[mechanism]
        known = sum(row["p"] is not None for row in some)
        parts = slice(0, known), slice(known, len(some))
        return [part for part in parts if part.start < part.stop]

    @property
    def paper(self) -> PaperClaims | None:
        """The paper's claims, if these are its settings. Rows do not contain the settings, but they
        follow from the cost and the error of independent noise.
        """
        paper = PAPER[self.manager]
        rate = self.values("independent", RATE)
        mean_m = self.values("independent", ERRORS[0]) * ERRORS[0].unit
        same = np.isclose(rate, paper.independent_rate, rtol=0.01)
        same &= np.isclose(mean_m, paper.independent_mean_m, rtol=0.15)
        return paper if same.any() else None

    @property
    def paper_label(self) -> str:
        """The claims are about GeoLife, which the label says in figures of other data."""
        same = all("geolife" in row["dataset"].casefold() for row in self.rows["predictive"])
        return "the paper" if same else "the paper, GeoLife"

    @property
    def break_even(self) -> float | None:
        """The prediction rate above which prediction pays off; unknown in advance with skip."""
        if self.skip:
            return None
        return StudySettings().describe(self.manager).build().break_even
