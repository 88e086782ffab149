"""PlaceMemory: means of noisy points, places that are gone back to, and the edges of maps."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish import (
    Day,
    Line,
    ParameterError,
    PlaceMemory,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    Session,
    Sphere,
    StateError,
    sanitize,
    whole_day,
)
from hereish.core.presets import FEW_DAYS
from hereish.core.spaces import Space
from hereish.core.step import prepare
from hereish.core.types import Floats
from tests.support.whole_days import PRIVACY, SPACES, live, people, presets, uniforms

PARTS = 6  # of the week: three of the day, on weekdays and at weekends
SHARP = Privacy(1e5, 1.0)  # noise of millimetres: what is released is what is true
HOME, WORK, CLUB, CABIN = (0.0, 0.0), (3000.0, 0.0), (0.0, 5000.0), (-9000.0, -9000.0)
steadily = settings(derandomize=True, deadline=None, max_examples=200)


def usual_place(at: datetime) -> tuple[float, float]:
    """Where somebody with habits is."""
    if at.weekday() >= 5:
        return CABIN
    return HOME if at.hour < 8 else WORK if at.hour < 16 else CLUB


def weeks_of_habits(m: PredictiveMechanism, zone: str, first: date, days: int) -> Session:
    session, clock = m.session(seed=1), ZoneInfo(zone)
    midnight = datetime(first.year, first.month, first.day)  # noqa: DTZ001  # the local clock
    for half_hour in range(48 * days):
        local = (midnight + timedelta(minutes=30 * half_hour)).replace(tzinfo=clock)
        at = datetime.fromtimestamp(local.timestamp(), clock)
        if at.timestamp() >= session.run.at_s[0] or not session.run.reports[0]:
            session.report(usual_place(at), at)
    return session


@pytest.mark.parametrize("zone", ["UTC", "Europe/Helsinki", "America/St_Johns", "Asia/Kathmandu"])
@pytest.mark.parametrize("first", [date(2024, 1, 8), date(2024, 3, 4), date(2024, 10, 21)])
def test_after_a_silence_the_usual_place_of_the_hour_and_weekday_is_guessed_and_tested(
    zone: str, first: date
) -> None:
    m = whole_day(SHARP, window=Day(zone), space=Plane(0.01))
    session = weeks_of_habits(m, zone, first, 21)
    after = datetime(first.year, first.month, first.day, tzinfo=ZoneInfo(zone))
    for day in range(24, 31):
        for hour in (3, 11, 19):
            at = after.replace(hour=hour) + timedelta(days=day)
            prepared = prepare(m, session.run, np.array([at.timestamp()]))
            np.testing.assert_allclose(prepared.guess[0], usual_place(at), atol=1.0)
            # It is asked about: a guess that nobody has said yes to is never free.
            assert np.isfinite(prepared.threshold).all()
            assert np.all(np.greater(prepared.cost_easy, 0.0))
    soon = session.run.at_s + 3600.0
    np.testing.assert_array_equal(prepare(m, session.run, soon).guess, session.run.value)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Helsinki", "America/St_Johns"])
def test_stays_count_for_the_parts_of_the_local_day(zone: str) -> None:
    # With tests that fail now and then: of a longer stay no more than a day counts.
    m = whole_day(SHARP, window=Day(zone), space=Plane(0.01), numbers=FEW_DAYS)
    session = weeks_of_habits(m, zone, date(2024, 5, 6), 22)
    table = session.run.learnt.reshape(-1, 3 + PARTS)
    table = table[table[:, 2] > 0.0]
    for place, hours in {
        HOME: (8.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        WORK: (0.0, 8.0, 0.0, 0.0, 0.0, 0.0),
        CLUB: (0.0, 0.0, 8.0, 0.0, 0.0, 0.0),
        CABIN: (0.0, 0.0, 0.0, 8.0, 8.0, 8.0),
    }.items():
        (row,) = table[np.abs(table[:, :2] - place).max(axis=1) < 1.0]
        shares = row[3:] / row[3:].sum()
        # A stay ends with its last report, half an hour before the next place is reached.
        np.testing.assert_allclose(shares, np.array(hours) / sum(hours), atol=0.05)


def learn(memory: PlaceMemory, noisy: list[tuple[Any, float]], *, lanes: int = 1) -> Any:
    """What is released for noisy points an hour apart, and what is known then."""
    dim, released = len(memory.space.coordinates), []
    run = Run.empty(lanes, dim, width=memory.width)
    for hour, (point, eps) in enumerate(noisy):
        at_s = np.full(lanes, 1.7e9 + 3600.0 * hour)
        fresh = np.broadcast_to(np.asarray(point, dtype=np.float64), (lanes, dim))
        value, learnt = memory.update(run, np.arange(lanes), at_s, fresh, eps)
        released.append(value[0].tolist())
        run = run._replace(
            values=value[:, None], times_s=at_s[:, None], hard_at_s=at_s, learnt=learnt
        )
    return np.array(released), run.learnt[0].reshape(-1, dim + 1 + PARTS)


@pytest.mark.parametrize("dim", [1, 2])
def test_places_are_means_weighted_by_exactness(dim: int) -> None:
    space: Space = Line() if dim == 1 else Plane()
    noisy = [(10.0, 0.01), (40.0, 0.02), (-20.0, 0.005), (25.0, 0.01)]
    released, table = learn(PlaceMemory(space), [([z] * dim, eps) for z, eps in noisy])
    weights = np.square([eps for _, eps in noisy])
    mean = np.average([z for z, _ in noisy], weights=weights)
    np.testing.assert_allclose(table[0, :dim], mean, rtol=1e-12)
    assert table[0, dim] == pytest.approx(weights.sum(), rel=1e-12)
    assert not table[1:].any(), "one place, and no others"
    # What is released is almost the mean: all four almost surely belong together.
    np.testing.assert_allclose(released[-1], mean, atol=0.05 * 45.0)
    np.testing.assert_array_equal(released[0], [10.0] * dim)


def test_a_place_that_is_known_exactly_enough_is_released_as_it_is_and_learns_no_more() -> None:
    noisy = [((0.0, 0.0), 0.01), ((60.0, 0.0), 0.01), ((0.0, 90.0), 0.01), ((-40.0, 10.0), 0.02)]
    settled = PlaceMemory(Plane(), finest_m=80.0)
    released, table = learn(settled, noisy)
    _, after_two = learn(settled, noisy[:2])
    # Two noises of a scale of 100 m are as good as one of 71 m.
    np.testing.assert_array_equal(table[0, :3], after_two[0, :3])
    np.testing.assert_array_equal(released[2:], [table[0, :2]] * 2)
    ever_finer, finer = learn(PlaceMemory(Plane()), noisy)
    assert finer[0, 2] > 3.0 * table[0, 2]
    assert len(np.unique(ever_finer, axis=0)) == len(noisy)


def test_noise_beyond_reach_of_a_known_place_is_of_another() -> None:
    memory = PlaceMemory(Plane(), finest_m=100.0)
    far = (memory.reach + 1.0) / 0.01
    released, table = learn(memory, [((0.0, 0.0), 0.01), ((30.0, 0.0), 0.01), ((far, 0.0), 0.01)])
    np.testing.assert_array_equal(released[1], [0.0, 0.0])
    assert released[2, 0] > 0.9 * far
    assert np.count_nonzero(table[:, 2]) == 2


@pytest.mark.parametrize("scales", [0.5, 3.0, 5.0])
@pytest.mark.parametrize("hour", [2, 12, 20])
def test_a_place_that_is_known_exactly_enough_never_gets_more_exact(
    hour: int, scales: float
) -> None:
    """Noise within reach is released as the place at unusual hours too."""
    memory = PlaceMemory(Plane(), finest_m=100.0)
    table = np.zeros((1, memory.places, 3 + PARTS))
    table[0, 0, :4], table[0, 1, :3], table[0, 1, 5] = (0, 0, 1.0, 500), (9000, 0, 1.0), 500
    at_s = np.array([datetime(2024, 5, 6, hour, tzinfo=UTC).timestamp()])
    run = Run.empty(1, 2, width=memory.width)._replace(
        learnt=table.reshape(1, -1),
        values=np.array([[(9000.0, 0.0)]]),
        times_s=at_s[:, None] - 1800.0,
        hard_at_s=at_s - 1801.0,
    )
    fresh = np.array([[0.0, scales / 0.01]])
    released, learnt = memory.update(run, np.arange(1), at_s, fresh, np.array([0.01]))
    np.testing.assert_array_equal(released[0], (0.0, 0.0))
    np.testing.assert_array_equal(learnt.reshape(-1, 3 + PARTS)[:, :3], table[0, :, :3])


def test_noise_goes_to_the_known_place_of_the_hour() -> None:
    """Two places with the noise between them: by day it belongs to one, by night to the other."""
    memory = PlaceMemory(Plane(), finest_m=100.0)
    table = np.zeros((1, memory.places, 3 + PARTS))
    table[0, 0, :4], table[0, 1, :3], table[0, 1, 5] = (0, 0, 1.0, 50), (400, 0, 1.0), 50
    midnight_s = datetime(2024, 5, 6, tzinfo=UTC).timestamp()
    run = Run.empty(1, 2, width=memory.width)._replace(learnt=table.reshape(1, -1))
    for hour, place in ((2, (0.0, 0.0)), (20, (400.0, 0.0))):
        at_s = np.array([midnight_s + 3600.0 * hour])
        before = at_s - 1800.0
        known = run._replace(
            values=np.array([[place]]), times_s=before[:, None], hard_at_s=before - 1.0
        )
        for x in (150.0, 200.0, 250.0):
            released, learnt = memory.update(
                known, np.arange(1), at_s, np.array([[x, 0.0]]), np.array([0.01])
            )
            np.testing.assert_array_equal(released[0], place)
            np.testing.assert_array_equal(learnt.reshape(-1, 3 + PARTS)[:, :3], table[0, :, :3])


def test_what_is_far_is_another_place_and_the_least_used_gives_way() -> None:
    memory = PlaceMemory(Plane(), places=2)
    far = 100.0 * memory.reach / 0.01
    released, table = learn(memory, [((0, 0), 0.01), ((far, 0), 0.01), ((0, 50), 0.01)])
    np.testing.assert_allclose(released[1], (far, 0), rtol=1e-9)
    assert released[2] == pytest.approx((0.0, 25.0), abs=2.0)
    assert sorted(table[:, 2]) == pytest.approx([1e-4, 2e-4])
    _, table = learn(memory, [((0, 0), 0.01), ((far, 0), 0.01), ((0, far), 0.01)])
    assert np.count_nonzero(table[:, 2]) == 2
    assert {tuple(place) for place in table[:, :2].round().tolist()} >= {(0.0, far)}


def test_across_the_antimeridian_a_mean_is_where_both_are() -> None:
    noisy = [((0.0, 179.9995), 0.01), ((0.0, -179.9995), 0.01), ((0.0, 179.9999), 0.01)]
    released, table = learn(PlaceMemory(Sphere()), noisy)
    assert np.abs(released[:, 1]).min() > 179.999
    assert abs(table[0, 1]) > 179.999
    assert table[0, 2] == pytest.approx(3e-4)
    assert np.abs(table[0, 0]) < 1e-9


@steadily
@given(
    st.sampled_from([0.0, 45.0, -60.17, 89.0, 89.9999, -90.0, 90.0]),
    st.sampled_from([0.0, 180.0, -179.9999, 24.9]),
    st.sampled_from([1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.1]),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["sphere", "plane", "line"]),
)
def test_noise_is_never_moved_further_than_the_reach(
    lat: float, lon: float, eps: float, seed: int, place: str
) -> None:
    space, rng, lanes = SPACES[place], np.random.default_rng(seed), 200
    reach, finest_m = float(rng.choice([0.5, 6.2, 20.0])), float(rng.choice([0.0, 3.0 / eps]))
    memory = PlaceMemory(space, places=3, reach=reach, finest_m=finest_m)
    dim = len(space.coordinates)

    def around(count: int) -> Floats:
        off = rng.normal(size=(count, dim)) * rng.choice([0.3, 3.0, 10.0], (count, 1)) / eps
        if place != "sphere":
            return space.snap(off)
        x = np.broadcast_to([lat, lon], (count, 2))
        u = rng.uniform(1e-9, 1.0, (count, space.uniforms))
        return space.noise(space.snap(x), eps / rng.choice([1.0, 3.0]), u)

    table = np.zeros((lanes, 3, dim + 1 + PARTS))
    for i in range(3):
        table[:, i, :dim] = around(lanes)
    table[:, :, dim] = eps**2 * 10.0 ** rng.uniform(-3.0, 6.0, (lanes, 3))
    table[:, :, dim + 1 :] = rng.uniform(0.0, 1e4, (lanes, 3, PARTS))
    learnt = table.reshape(lanes, -1)
    assert memory.find_fault(learnt) is None
    at_s = np.full(lanes, 1.7e9)
    run = Run.empty(lanes, dim, width=memory.width)._replace(
        values=around(lanes)[:, None],
        times_s=at_s[:, None] - 60.0,
        hard_at_s=at_s - 7200.0,
        learnt=learnt,
    )
    fresh = around(lanes)
    released, after = memory.update(run, np.arange(lanes), at_s, fresh, eps)
    # Rounding of doubles on top, in coordinates of this size.
    allowed = memory.reach / eps * (1.0 + 1e-9) + 1e-6
    assert space.distance(fresh, released).max() <= allowed
    assert memory.find_fault(after) is None, "what it learns can be saved and restored"


def test_the_last_double_before_the_antimeridian_is_on_the_map() -> None:
    memory, edge = PlaceMemory(Sphere()), math.nextafter(180.0, 0.0)
    points = np.array([[0.0, edge], [0.0, -edge], [0.0, -180.0]])
    still = [np.zeros(3), np.zeros(3)]
    moved = memory._moved(points, still, memory._cosine(points))
    assert (np.abs(moved[:, 1]) <= 180.0).all()


def test_lanes_without_a_history_learn_as_if_they_were_alone() -> None:
    memory, rng = PlaceMemory(Sphere()), np.random.default_rng(2)
    fresh = memory.space.snap(rng.uniform([-80, -180], [80, 180], (7, 2)))
    at_s, eps = np.full(7, 1.7e9), rng.uniform(1e-4, 1e-2, 7)
    new = Run.empty(7, 2, width=memory.width)
    alone = memory.update(new, np.arange(7), at_s, fresh, eps)
    known = np.array([0, 3, 4])
    learnt, hard_at_s, values = new.learnt.copy(), new.hard_at_s.copy(), new.values.copy()
    learnt[known], hard_at_s[known], values[known, 0] = (
        alone[1][known],
        at_s[0] - 60.0,
        fresh[known],
    )
    times_s = np.where(np.isfinite(hard_at_s), at_s - 30.0, np.nan)[:, None]
    mixed = new._replace(learnt=learnt, hard_at_s=hard_at_s, values=values, times_s=times_s)
    released, after = memory.update(mixed, np.arange(7), at_s, fresh, eps)
    others = np.setdiff1d(np.arange(7), known)
    assert released[others].tobytes() == alone[0][others].tobytes()
    assert after[others].tobytes() == alone[1][others].tobytes()
    assert np.isfinite(after).all()


def test_a_silent_lane_without_known_hours_repeats_its_last_release() -> None:
    memory = PlaceMemory(Plane())
    run = Run.empty(3, 2, width=memory.width)
    guess = memory(run, np.full(3, 1.7e9))
    assert np.isnan(guess).all(), "no release, no guess"
    seen = run._replace(values=np.ones((3, 1, 2)), times_s=np.zeros((3, 1)), hard_at_s=np.zeros(3))
    np.testing.assert_array_equal(memory(seen, np.full(3, 1.7e9)), np.ones((3, 2)))


# States from outside.

HOSTILE = {
    "NaN": math.nan,
    "infinite": -math.inf,
    "huge": 1e308,
    "negative": -7.0,
    "off the map": 181.0,
}


@pytest.mark.parametrize("place", SPACES)
@pytest.mark.parametrize("number", HOSTILE)
def test_a_hostile_number_in_what_was_learnt_is_refused_or_harmless(
    place: str, number: str
) -> None:
    m = presets(SPACES[place])["whole day"]
    data = people(m.space, [40], 7)
    session = m.session(seed=3)
    live(session, data.points, data.at_s)
    state = json.dumps(session.to_state(), allow_nan=False)
    later = datetime.fromtimestamp(float(data.at_s[-1]) + 5 * 86400.0, ZoneInfo("UTC"))
    refused = 0
    for i in range(m.width):
        hostile = json.loads(state)
        value = HOSTILE[number]
        hostile["run"]["learnt"][i] = value if math.isfinite(value) else str(value)
        try:
            again = Session.from_state(m, hostile, seed=4)
        except StateError:
            refused += 1
            continue
        for day in range(3):
            report = again.report(data.points[0], later + timedelta(days=day))
            assert np.isfinite(report.value).all()
        assert m.tracker is not None
        assert m.tracker.find_fault(again.run.learnt) is None
    # What is a place or a weight: all of them, unless the space has room for such a place.
    least = {"NaN": m.width, "infinite": m.width, "huge": m.width, "negative": 6 * 7}
    assert refused >= least.get(number, 6 if place == "sphere" else 0)


def test_a_hostile_run_is_refused_in_batch_too() -> None:
    m = whole_day(PRIVACY)
    data = people(m.space, [20, 20], 7)
    run = sanitize(m, *data, uniforms=uniforms(m, 40), run=m.run(2)).run
    assert run is not None
    learnt = run.learnt.copy()
    learnt[1, 1] = 200.0
    with pytest.raises(ParameterError, match="longitude of a place is not in the space"):
        sanitize(m, data.points, data.at_s + 1e7, data.offsets, run=run._replace(learnt=learnt))


@pytest.mark.parametrize(
    "wrong",
    [
        {"places": 0},
        {"places": 2.0},
        {"places": 10**6},
        {"reach": 0.0},
        {"blur": math.nan},
        {"habit": -0.1},
        {"silence_s": math.inf},
        {"time_zone": "Europe/Nowhere"},
        {"space": "sphere"},
    ],
    ids=repr,
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        PlaceMemory(**wrong)


def test_it_must_know_the_space_of_the_mechanism() -> None:
    with pytest.raises(hereish.PartError, match="must be told the space"):
        hereish.PredictiveMechanism(
            PRIVACY,
            hereish.Steady(0.001, hereish.Tolerance(100.0, 1.0, 0.1, 3600.0)),
            hereish.Plane(),
            hereish.PlaceMemory(),
            hereish.NoiseFirst(),
        )


def test_a_time_of_no_year_is_refused_before_anything_is_drawn() -> None:
    m = hereish.steady(PRIVACY, 3000.0, numbers=hereish.PresetNumbers())
    session = m.session(seed=1)
    with pytest.raises(hereish.PointError, match="years 1800 to 2500"):
        session.report((60.0, 25.0), datetime(2600, 1, 1, tzinfo=UTC))
    assert session.spent == 0.0


def test_an_exhausted_budget_repeats_the_last_release_and_no_other_place() -> None:
    m = whole_day(PRIVACY, reports=12, window="none", on_exhausted="predict", numbers=FEW_DAYS)
    changed = 0
    for seed in range(20):
        session = m.session(seed=seed)
        at = datetime(2026, 5, 4, tzinfo=UTC)
        for hour in range(40):  # home by night, work by day
            place = (60.17, 24.94) if hour % 24 < 8 else (60.25, 25.05)
            last = session.report(place, at + timedelta(hours=hour))
        after = session.report((60.17, 24.94), at + timedelta(hours=40 + 36))
        assert after.kind == "untested"
        assert after.value == last.value
        guess = m.prediction(session.run, np.array([(at + timedelta(hours=200)).timestamp()]))
        changed += tuple(guess[0].tolist()) != last.value
    assert changed, "the control: the guess would have been another place"


@pytest.mark.parametrize("prediction", [PlaceMemory(), hereish.Mobility()])
def test_a_run_of_no_lanes_has_no_fault(prediction: hereish.Tracker) -> None:
    m = whole_day(PRIVACY, prediction=prediction)
    assert prediction.find_fault(m.run(0).learnt) is None
    out = sanitize(m, np.empty((0, 2)), np.empty(0), [0], run=m.run(0))
    assert out.run is not None
    assert len(out.run.spent) == len(out.value) == 0
