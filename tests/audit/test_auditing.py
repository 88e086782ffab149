"""The audit as users run it: it finds every planted fault, and nothing where there is none.

Fixed seeds, alpha = 1e-6 for all pairs and events of an audit together. What it sees at these
numbers of runs is stated by `PairResult.seen_from`, whose power test_bounds.py measures.
"""

from __future__ import annotations

import math
import sys
import time
from datetime import timedelta

import numpy as np
import pytest

import hereish
from hereish import ParameterError, PartError, Privacy
from hereish.audit import ReleasedRuns, audit, auditing, controls, moved, pairs_for
from hereish.audit.mechanisms import BlackBox, load_mechanism
from hereish.core.types import Floats
from tests.support.paths import GEOLIFE

PRIVACY = controls.PRIVACY
# The fault of a test shows in few runs: 1 % of them, where it is paid by half.
RUNS: dict[BlackBox, int] = {controls.half_paid_test: 60_000}


@pytest.mark.parametrize("control", controls.CONTROLS, ids=lambda control: control.__name__)
def test_every_negative_control_is_caught(control: BlackBox) -> None:
    found = audit(control, PRIVACY, runs=RUNS.get(control, 10_000), seed=7)
    assert found.refuted, found.sharpest
    assert found.sharpest.result.worst.excess > 0.0


def test_the_same_without_a_fault_is_not() -> None:
    found = audit(controls.sound, PRIVACY, runs=50_000, seed=7)
    assert not found.refuted, found.sharpest
    assert found.reach > 0.4


def test_the_true_latitude_at_the_equator_is_what_geocentric_noise_gives_away() -> None:
    found = audit(controls.geocentric_noise, PRIVACY, runs=10_000, seed=8)
    losses = {pair.name: pair.sharpest.loss for pair in found.pairs}
    assert losses["100 m north at the equator"] > 5.0
    assert losses["100 m east at the equator"] < math.log(10)


@pytest.mark.parametrize(
    "m",
    [
        hereish.whole_day(PRIVACY),
        hereish.independent(PRIVACY, reports=4),
        hereish.fixed_rate(PRIVACY, 10),
    ],
    ids=["whole day", "independent", "fixed rate"],
)
def test_ours_give_away_what_they_claim_at_most(m: hereish.PredictiveMechanism) -> None:
    found = audit(m, runs=20_000, seed=9)
    assert not found.refuted, found.sharpest
    assert found.reach > 0.3


def test_so_it_is_with_the_randomness_that_users_get() -> None:
    assert not audit(hereish.whole_day(PRIVACY), runs=10_000).refuted


def test_runs_that_are_not_given_are_as_many_as_fit() -> None:
    tried: list[int] = []
    began = time.monotonic()
    assert auditing._affordable(tried.append, 1e9, began, pairs=3) == 200_000
    assert tried == [2_000, 10_000]
    assert audit(hereish.independent(PRIVACY, reports=4), within_s=1e-9).runs == 2_000


def test_two_windows_count_as_two_budgets() -> None:
    m = hereish.independent(PRIVACY, reports=1, window=timedelta(minutes=30))
    found = audit(m, runs=2_000, seed=10)
    assert found.pairs[0].claim == pytest.approx(4 * PRIVACY.eps_per_m * found.pairs[0].apart_m)


@pytest.mark.parametrize(
    ("window", "budgets"),
    [
        # Four reports, half an hour apart.
        (hereish.Hours(1), 2.0),
        (hereish.Every(timedelta(minutes=30)) & hereish.Hours(24).within(1.5 * PRIVACY.level), 1.5),
        (hereish.Every(timedelta(minutes=30)) & hereish.Hours(1).within(1.5 * PRIVACY.level), 3.0),
        (hereish.Every(timedelta(minutes=30)) & hereish.Forever.within(9 * PRIVACY.level), 4.0),
    ],
)
def test_of_several_budgets_the_tightest_is_claimed(window: hereish.Window, budgets: float) -> None:
    m = hereish.independent(PRIVACY, reports=1, window=window)
    at_s = auditing.report_times(4, 1800.0)
    assert auditing._budget(m, PRIVACY, at_s) == pytest.approx(budgets * PRIVACY.eps_per_m)


def test_a_limit_that_is_not_enforced_is_caught() -> None:
    """A report a day, each with the whole budget of 30 days: in order, and with the limiter off."""
    window = hereish.Day("UTC") & hereish.Days(30).within(PRIVACY.level)
    each = hereish.core.budget.AlwaysNoise(0.999 * PRIVACY.eps_per_m)
    m = hereish.PredictiveMechanism(PRIVACY, each, window=window)
    pairs = [moved(np.tile((60.17, 24.94), (4, 1)), 100.0, 0.0, "100 m")]

    def audited() -> auditing.Audit:
        return audit(m, pairs=pairs, every_s=86400.0, runs=8_000, seed=13)

    sound = audited()
    assert not sound.refuted, sound.sharpest
    assert sound.reach > 0.3
    object.__setattr__(m, "limiter", None)  # the fault
    assert audited().refuted


def _planted(chance: float, loss: float) -> BlackBox:
    """Of what it releases one place tells of the trace: it comes up so often from the first, and
    exp(loss) times as rarely further north.
    """

    def mechanism(traces: Floats, at_s: Floats, rng: np.random.Generator) -> Floats:
        rarer = np.where(traces[:, 0, 0] > 60.1701, math.exp(-loss), 1.0)
        out = np.tile((60.0, 25.0), (*traces.shape[:2], 1))
        out[rng.uniform(size=len(traces)) < chance * rarer] = (61.0, 25.0)
        return out

    return mechanism


@pytest.mark.parametrize("chance", [0.3, 0.5])
def test_what_is_said_to_be_noticed_is_noticed(chance: float) -> None:
    """40 audits of 4,000 runs: at least 9 of 10 with the smallest violation, few with half of it,
    and none with none.
    """
    pairs = [moved(np.tile((60.17, 24.94), (4, 1)), 100.0, 0.0, "100 m")]
    claim = PRIVACY.eps_per_m * pairs[0].apart_m

    def noticed(share: float, chance: float) -> int:
        box = _planted(chance, share * claim)
        seeds = range(2, 42)
        return sum(audit(box, PRIVACY, pairs, runs=4_000, seed=seed).refuted for seed in seeds)

    found = audit(_planted(chance, claim), PRIVACY, pairs, runs=4_000, seed=1)
    keenest = found.keenest
    assert keenest is not None
    assert found.as_dict()["seen_from_share"] == keenest.seen_from_share > 1.0
    as_common = keenest.sharpest.hits / keenest.result.runs
    assert noticed(keenest.seen_from_share, as_common) >= 36
    assert noticed(0.5 + 0.5 * keenest.seen_from_share, as_common) < 20
    assert noticed(1.0, as_common) == 0


def test_far_apart_nothing_can_be_seen_with_few_runs() -> None:
    """300 m apart ln 1000 is claimed: no event of 2,000 runs that were counted refutes that."""
    pairs = [moved(np.tile((60.17, 24.94), (4, 1)), 300.0, 0.0, "300 m")]
    found = audit(hereish.independent(PRIVACY, reports=4), pairs=pairs, runs=4_000, seed=1)
    assert found.reach > 0.2
    assert found.keenest is None
    assert found.as_dict()["seen_from_share"] is None


def test_budgets_are_asked_for_per_trace() -> None:
    """A mechanism that claims the budget for each report, and is held to it for all of them."""

    def each(traces: Floats, at_s: Floats, rng: np.random.Generator) -> Floats:
        out = hereish.sanitize(
            hereish.independent(PRIVACY, reports=1),
            traces.reshape(-1, 2),
            np.zeros(traces.size // 2),
            np.arange(traces.size // 2 + 1),
            seed=int(rng.integers(2**31)),
        )
        return out.value.reshape(traces.shape)

    assert audit(each, PRIVACY, runs=20_000, seed=11).refuted
    whole = Privacy(4 * PRIVACY.level, PRIVACY.radius_m)
    assert not audit(each, whole, runs=20_000, seed=11).refuted


def _one(value: object) -> BlackBox:
    return lambda traces, at_s, rng: value  # type: ignore[return-value]  # what it is about


def _booked(traces: Floats, at_s: Floats, rng: np.random.Generator) -> ReleasedRuns:
    flat = np.zeros(traces.shape[:2])
    return ReleasedRuns(traces * 0.0, flat.astype(np.int64) + 9, flat)


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (_one(None), "shape of the traces"),
        (_one("places"), "array of numbers"),
        (_one(np.zeros((3, 2))), "shape of the traces"),
        (lambda traces, at_s, rng: np.full_like(traces, np.inf), "finite numbers"),
        (lambda traces, at_s, rng: traces[5, 5, 5], "IndexError"),
        (lambda traces, at_s, rng: sys.exit(0), "SystemExit"),
        (_booked, "kinds"),
    ],
)
def test_a_mechanism_that_answers_something_else_is_refused(mechanism: BlackBox, said: str) -> None:
    with pytest.raises(PartError, match=said):
        audit(mechanism, PRIVACY, runs=2_000)


def test_releasing_nothing_tells_nothing() -> None:
    found = audit(lambda traces, at_s, rng: traces * np.nan, PRIVACY, runs=2_000)
    assert not found.refuted
    assert found.reach <= 0.0
    assert found.keenest is None, "what always happens is common, and tells nothing"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"runs": 10}, "at least 2000"),
        ({"alpha": 0.0}, "alpha"),
        ({"privacy": Privacy(1.0, 100.0)}, "privacy"),
    ],
)
def test_settings_that_make_no_audit_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        audit(hereish.whole_day(PRIVACY), **settings)  # type: ignore[arg-type]  # as a caller may
    with pytest.raises(ParameterError, match="privacy"):
        audit(controls.rounding)


def test_other_spaces_need_pairs_of_their_own() -> None:
    with pytest.raises(ParameterError, match="pairs of your own"):
        pairs_for(hereish.fixed_utility(PRIVACY, 1000, space=hereish.Plane()))


@pytest.mark.parametrize(
    ("name", "said"), [("rounding", "module:function"), ("nowhere_at_all:f", "import"),
                       ("hereish.audit.controls:nothing", "no function")],
)  # fmt: skip
def test_functions_that_are_not_there_are_named(name: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        load_mechanism(name)
    assert load_mechanism("hereish.audit.controls:rounding") is controls.rounding


@pytest.mark.skipif(not GEOLIFE.is_file(), reason="the real traces are not on this machine")
def test_real_people_are_told_from_their_neighbours_no_better_than_is_claimed() -> None:
    """Five users of GeoLife, four reports each: moved by the radius, and by eight of them."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(GEOLIFE)
    pairs = []
    for group in range(0, 10, 2):
        rows = file.read_row_group(group, columns=["lat", "lon"]).take([0, 1000, 2000, 3000])
        places = np.array([rows[name].to_pylist() for name in ("lat", "lon")], np.float64).T
        for metres, bearing in ((100.0, 0.0), (800.0, 120.0)):
            pairs.append(moved(places, metres, bearing, f"user {group}, {metres:g} m"))
    found = audit(hereish.whole_day(PRIVACY), pairs=pairs, runs=10_000, seed=12)
    assert not found.refuted, found.sharpest
    assert found.reach > 0.3
    assert audit(controls.east_only_noise, PRIVACY, pairs, runs=4_000, seed=12).refuted
