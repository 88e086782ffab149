"""What the figures of the study show: its rows as curves over p, beside what the paper says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hereish.core.mechanism import fixed_rate, fixed_utility
from hereish.core.types import Floats
from hereish.evaluation.configurations import Setting
from hereish.evaluation.study import Row

# In the order in which they are told; what else the study measures is in its table only.
MECHANISMS = ("predictive", "independent", "repeat")
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; the green is
# darker than theirs, for its words to be read.
BLUE, RED, GREEN, GREY, DARK = "#0072B2", "#D55E00", "#00805E", "#707070", "#404040"


class Line(NamedTuple):
    """A measured number that is drawn over p."""

    name: str  # as in the rows
    words: str
    color: str
    unit: float = 1.0  # of the axis


GENERAL = (
    Line("prediction_rate", "predicted", BLUE),
    Line("test_share", "budget\nfor tests", RED),
    Line("skipped_share", "test\nskipped", GREEN),
)
ERRORS = (
    Line("error_mean_m", "average", BLUE, 1000.0),
    Line("error_p90_m", "90th\npercentile", RED, 1000.0),
)
RATE = Line("rate", "", BLUE)


@dataclass(frozen=True)
class Paper:
    """The paper's setting, known by what independent noise costs and errs there; and its claims."""

    setting: str
    independent_rate: float
    independent_mean_m: float
    better_m: dict[str, tuple[float, float]]  # than independent noise, without skip
    down_to: dict[bool, float]  # the rate, without and with skip


PAPER = {
    "fixed_rate": Paper(
        "30 reports",
        1.0 / 30.0,
        2606.0,
        {"error_mean_m": (500.0, 700.0), "error_p90_m": (1300.0, 1900.0)},
        {},
    ),
    "fixed_utility": Paper("3 km", 0.0563, 1543.0, {}, {False: 0.041, True: 0.02}),
}


@dataclass(frozen=True)
class Curves:
    """The rows of one figure: a configuration, and those that it is compared with."""

    manager: str
    skip: bool
    rows: dict[str, list[Row]]  # by mechanism, by rising p

    @classmethod
    def of(cls, rows: Iterable[Row], manager: str, skip: bool) -> Curves:
        own: dict[str, list[Row]] = {mechanism: [] for mechanism in MECHANISMS}
        for row in rows:
            asked = skip and row["mechanism"] == "predictive"
            if row["mechanism"] in own and (row["manager"], row["skip"]) == (manager, asked):
                own[row["mechanism"]].append(row)
        for some in own.values():
            some.sort(key=lambda row: (row["p"] is None, row["p"] or 0.0))
        return cls(manager, skip, own)

    def values(self, mechanism: str, line: Line, end: str = "") -> Floats:
        """In the unit of the axis; NaN where nothing is known."""
        found = [row[line.name + end] for row in self.rows[mechanism]]
        return np.array([np.nan if v is None else v / line.unit for v in found], dtype=np.float64)

    def known(self, lines: Sequence[Line]) -> bool:
        return any(np.isfinite(self.values("predictive", line)).any() for line in lines)

    def last(self, mechanism: str, line: Line) -> float | None:
        """The value at the end of the curve, where its words are put."""
        values = self.values(mechanism, line)
        found = values[np.isfinite(values)].tolist()
        return found[-1] if found else None

    @property
    def single(self) -> bool:
        """Whether there is only one p, so that there are points and no lines."""
        return len({row["p"] for row in self.rows["predictive"]}) == 1

    def x(self, mechanism: str) -> Floats:
        """p, or the place of the mechanism if there is only one p. A p that is not told is last."""
        some = self.rows[mechanism]
        if self.single:
            return np.full(len(some), float(MECHANISMS.index(mechanism)))
        beside = max((row["p"] for row in some if row["p"] is not None), default=0.0) + 0.15
        return np.array([beside if row["p"] is None else row["p"] for row in some])

    def stretches(self, mechanism: str) -> list[slice]:
        """The rows that a line may join: a p that is not told is not next to any."""
        some = self.rows[mechanism]
        told = sum(row["p"] is not None for row in some)
        parts = slice(0, told), slice(told, len(some))
        return [part for part in parts if part.start < part.stop]

    @property
    def paper(self) -> Paper | None:
        """The paper, if it asked the same. Rows do not tell settings, but independent noise does:
        it costs what they are, and errs as they say.
        """
        paper = PAPER[self.manager]
        rate = self.values("independent", RATE)
        mean_m = self.values("independent", ERRORS[0]) * ERRORS[0].unit
        same = np.isclose(rate, paper.independent_rate, rtol=0.01)
        same &= np.isclose(mean_m, paper.independent_mean_m, rtol=0.15)
        return paper if same.any() else None

    @property
    def paper_words(self) -> str:
        """Its claims are about GeoLife, which has to be said beside other data."""
        same = all("geolife" in row["dataset"].casefold() for row in self.rows["predictive"])
        return "the paper" if same else "the paper, GeoLife"

    @property
    def break_even(self) -> float | None:
        """The prediction rate above which testing pays; with skip nobody knows it in advance."""
        if self.skip:
            return None
        asked = Setting()
        if self.manager == "fixed_rate":
            return fixed_rate(asked.privacy, asked.reports).break_even
        return fixed_utility(asked.privacy, asked.accuracy_m).break_even
