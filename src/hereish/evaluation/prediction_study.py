"""When predictions that follow a movement pay off, and when not, as tables.

    python -m hereish.evaluation.prediction_study geolife.parquet
    python -m hereish.evaluation.prediction_study

Trips are cut into parts by how somebody moved (`movement`), and reported every so often. Costs are
those of independent noise of the same accuracy, on average over traces, and over reports (pooled).
First the paper's mechanism with a fixed utility, of which nothing is tuned. With `--noise-first`
also that, its test found for each prediction on half of the users, and its noise so that errors are
those of independent noise. All numbers are those of the other half of the users. Without data it
takes made-up trips. Nothing here is private: the noise comes from a seed.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hereish.core.budget import Plan
from hereish.core.ensemble import Ensemble
from hereish.core.filter import Filter
from hereish.core.linear import Linear
from hereish.core.mechanism import DoesNotPayOffWarning, PredictiveMechanism, fixed_utility
from hereish.core.noise_first import NoiseFirst
from hereish.core.prediction import Parrot, Prediction
from hereish.core.privacy import Privacy
from hereish.core.run import Run
from hereish.core.spaces import Sphere
from hereish.core.types import Floats
from hereish.errors import PointError
from hereish.evaluation.configurations import run_mechanism
from hereish.evaluation.dataset import Trajectories, load, split_users
from hereish.evaluation.metrics import StudyMetrics, Sums
from hereish.evaluation.movement import (
    ANY,
    MOVEMENTS,
    SLOW,
    STRAIGHT,
    MovementCriteria,
    find_parts,
    made_up_trips,
)
from hereish.evaluation.sampling import Queries
from hereish.evaluation.situations import LeastRate, Limits

PREDICTIONS: dict[str, Prediction] = {
    "parrot": Parrot(),
    "linear": Linear(),
    "filter": Filter(),
    "ensemble": Ensemble(),
}
EVERY_S = (10.0, 30.0, 60.0)
ACCURACIES_M = (100.0, 200.0, 300.0, 3000.0)
# For noise first, which is tuned: fewer situations, and of each fewer reports.
NOISE_FIRST = (
    *((STRAIGHT, every_s, accuracy_m) for every_s in (10.0, 30.0) for accuracy_m in (100.0, 300.0)),
    *((movement, 30.0, 300.0) for movement in (SLOW, ANY)),
)
MOST_REPORTS, MOST_TUNED = 20_000, 5_000
SPLIT_SEED, SEED = 1, 5
# Of a test of noise first: its epsilon as a share of that of the noise, and the distance that
# always passes, in scales of the noise.
_SHARES, _NEARS = (0.1, 0.3, 0.9), (0.5, 1.5, 3.0)
_AMPLE = Privacy(level=1e9, radius_m=1.0)  # nobody's budget ends
_SPHERE = Sphere()


class TripSituation(NamedTuple):
    """Who reports, how often, and how accurately."""

    movement: MovementCriteria
    every_s: float
    accuracy_m: float

    @property
    def eps_alone(self) -> float:
        """What a report costs as independent noise."""
        return _SPHERE.c_noise(0.9) / self.accuracy_m


class Scored(NamedTuple):
    """How much cheaper than independent noise a prediction is, and how far off."""

    rate: float  # averaged over traces; 1 is independent noise
    rate_pooled: float  # averaged over reports
    accepted: float
    error_m: float  # on average
    error_p90_m: float


@dataclass(frozen=True, eq=False)
class PredictionStudy:
    """Trips of some users to tune on, and of others to score."""

    trajectories: Trajectories
    most: int = MOST_REPORTS

    def reports(
        self, movement: MovementCriteria, every_s: float, *, tuning: bool = False
    ) -> Queries:
        """Reports of those who move like this, of the users to score unless they are to tune on."""
        tuned_on = split_users(self.trajectories.users, 0.5, SPLIT_SEED)
        parts = find_parts(self.trajectories, movement).of(tuned_on if tuning else ~tuned_on)
        most = min(self.most, MOST_TUNED) if tuning else self.most
        return parts.reports(every_s, most, np.random.default_rng([SEED, int(tuning)]))

    def laplace_test(
        self,
        movements: Sequence[MovementCriteria] = MOVEMENTS,
        every_s: Sequence[float] = EVERY_S,
        accuracies_m: Sequence[float] = ACCURACIES_M,
        predictions: Mapping[str, Prediction] | None = None,
    ) -> Iterator[tuple[TripSituation, dict[str, Scored]]]:
        """The paper's mechanism with a fixed utility, for each prediction."""
        predictions = PREDICTIONS if predictions is None else predictions
        for movement in movements:
            for every in every_s:
                try:
                    reports = self.reports(movement, every)
                except PointError:
                    continue  # nobody does
                for accuracy_m in accuracies_m:
                    situation = TripSituation(movement, every, accuracy_m)
                    yield (
                        situation,
                        {
                            name: _score(situation, _papers(one, accuracy_m), reports)
                            for name, one in predictions.items()
                        },
                    )

    def noise_first(
        self, situations: Sequence[tuple[MovementCriteria, float, float]] = NOISE_FIRST
    ) -> Iterator[tuple[TripSituation, dict[str, float]]]:
        """Noise first with a test that was tuned: rates at errors of independent noise."""
        for movement, every_s, accuracy_m in situations:
            situation = TripSituation(movement, every_s, accuracy_m)
            try:
                halves = [self.reports(movement, every_s, tuning=one) for one in (True, False)]
            except PointError:
                continue
            halves[1] = _at_most(halves[1], MOST_TUNED)
            yield situation, {n: _tuned(situation, p, halves) for n, p in PREDICTIONS.items()}


def _at_most(reports: Queries, most: int) -> Queries:
    """The first traces, with about so many reports."""
    return reports.take(np.arange(np.searchsorted(reports.offsets[:-1], most)))


def _papers(prediction: Prediction, accuracy_m: float) -> PredictiveMechanism:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoesNotPayOffWarning)  # that is what is measured
        return fixed_utility(_AMPLE, accuracy_m, prediction=prediction)


def _score(situation: TripSituation, m: PredictiveMechanism, reports: Queries) -> Scored:
    sums = Sums.zero(reports.users)
    sums.add(reports, run_mechanism(m, reports, SEED), situation.eps_alone)
    found: StudyMetrics = sums.metrics()
    return Scored(
        found.rate,
        found.rate_pooled,
        found.prediction_rate,
        found.error_mean_m,
        found.error_p90_m,
    )


@dataclass(frozen=True)
class _Asking:
    """A plan for noise first that is always the same."""

    eps_noise: float
    share: float
    near: float
    needs_history = False

    def __call__(self, run: Run, at_s: Floats, /) -> Plan:
        return Plan(self.share * self.eps_noise, self.eps_noise, self.near / self.eps_noise)


def _tuned(situation: TripSituation, prediction: Prediction, halves: Sequence[Queries]) -> float:
    """The rate of the second half, over that of independent noise, as the first half chose."""
    traces = LeastRate(
        situation.movement.name,
        _AMPLE,
        [halves[0]],
        [halves[1]],
        limits=Limits.of_accuracy(situation.accuracy_m),
    )

    def of(share: float, near: float) -> float:
        return traces.fit(lambda accuracy_m: build(share, near, accuracy_m), SEED).score

    def build(share: float, near: float, accuracy_m: float | None) -> PredictiveMechanism:
        eps_noise = _SPHERE.c_noise(0.9) / (accuracy_m or situation.accuracy_m)
        asking = _Asking(eps_noise, share, near)
        return PredictiveMechanism(_AMPLE, asking, prediction=prediction, decision=NoiseFirst())

    tried = {(share, near): of(share, near) for share in _SHARES for near in _NEARS}
    share, near = min(tried, key=lambda one: tried[one])
    rate = traces.rate_at_limits(lambda accuracy_m: build(share, near, accuracy_m), SEED)
    return rate * _AMPLE.eps_per_m / situation.eps_alone


def _row(situation: TripSituation, cells: Sequence[str]) -> str:
    who, every_s, accuracy_m = situation
    metres = f"{accuracy_m:g} m" if accuracy_m < 1000.0 else f"{accuracy_m / 1000.0:g} km"
    return f"| {who.name} | {every_s:g} s | {metres} | {' | '.join(cells)} |"


def _head(cells: Sequence[str]) -> str:
    return f"| who | every | accuracy | {' | '.join(cells)} |\n|---|---|---|{'---|' * len(cells)}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m hereish.evaluation.prediction_study")
    parser.add_argument("data", nargs="*", help="files of trips; made-up ones if none is given")
    parser.add_argument("--reports", type=int, default=MOST_REPORTS, help="about so many of each")
    parser.add_argument("--noise-first", action="store_true", help="tune it too: some minutes more")
    options = parser.parse_args()
    study = PredictionStudy(
        load(options.data) if options.data else made_up_trips(), options.reports
    )
    print(f"{study.trajectories!r}, of which half of the users are scored\n", file=sys.stderr)
    print("Fixed utility: cost over that of independent noise (pooled); mean error\n")
    print(_head(list(PREDICTIONS)))
    for situation, scored in study.laplace_test():
        cells = [f"{s.rate:.3f} ({s.rate_pooled:.3f}); {s.error_m:.0f} m" for s in scored.values()]
        print(_row(situation, cells), flush=True)
    if not options.noise_first:
        return
    print("\nNoise first, tuned: cost over that of independent noise with the same errors\n")
    print(_head(list(PREDICTIONS)))
    for situation, rates in study.noise_first():
        print(_row(situation, [f"{rate:.3f}" for rate in rates.values()]), flush=True)


if __name__ == "__main__":
    main()
