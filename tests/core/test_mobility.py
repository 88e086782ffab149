"""Mobility: when somebody is where, where they go from there, and what a group knows."""

from __future__ import annotations

import json
import math
import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hereish import (
    Day,
    Ensemble,
    Line,
    Mobility,
    MobilityModel,
    ParameterError,
    Parrot,
    PartError,
    PlaceMemory,
    Plane,
    PredictiveMechanism,
    Run,
    Session,
    Sphere,
    StateError,
    whole_day,
)
from hereish.core.fingerprint import fingerprint
from hereish.core.mobility_model import BINS, PARTS
from hereish.core.spaces import Space
from hereish.core.step import prepare
from hereish.core.types import Floats
from tests.core.test_places import CABIN, CLUB, HOME, SHARP, WORK, usual_place, weeks_of_habits
from tests.support.courses import group_model
from tests.support.whole_days import PRIVACY, SPACES, live, people

MONDAY = date(2024, 1, 8)
steadily = settings(derandomize=True, deadline=None, max_examples=60)


def sharp(zone: str, **given: Any) -> PredictiveMechanism:
    """Noise of millimetres: what is released is what is true."""
    space = Plane(1e-6)
    mobility = Mobility(space, zone, **given)
    return whole_day(SHARP, window=Day(zone), space=space, prediction=mobility)


def own_model(m: PredictiveMechanism, session: Session) -> dict[str, dict[Any, Any]]:
    """Hours at each place, to the metre, and moves between them; a place may be known twice."""
    assert isinstance(m.prediction, Mobility)
    model = m.prediction.model_of(session.run, "own")
    names = [tuple(place) for place in model.places.round() + 0.0]
    hours: dict[Any, Any] = {}
    moves: dict[Any, Any] = {}
    for i, a in enumerate(names):
        hours[a] = hours.get(a, 0.0) + model.hours[i]
        for k, b in enumerate(names):
            if a != b:
                moves[a, b] = moves.get((a, b), 0.0) + model.moves[i, k]
    return {"hours": hours, "moves": moves}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Helsinki", "Asia/Kathmandu"])
@pytest.mark.parametrize("first", [MONDAY, date(2024, 3, 4)])
def test_after_a_silence_the_usual_place_of_the_hour_and_weekday_is_guessed_and_tested(
    zone: str, first: date
) -> None:
    m = sharp(zone, sure=3.0)
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


def test_somebody_who_is_hardly_ever_elsewhere_is_not_guessed_elsewhere() -> None:
    m = sharp("UTC", sure=3.0, stay_s=1e7)  # whose stays last
    session = weeks_of_habits(m, "UTC", MONDAY, 21)
    later = session.run.at_s + 30 * 3600.0
    np.testing.assert_array_equal(prepare(m, session.run, later).guess, session.run.value)


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_stays_count_for_the_parts_of_the_local_day_and_moves_for_where_from(zone: str) -> None:
    m = sharp(zone)
    session = weeks_of_habits(m, zone, date(2024, 5, 6), 22)
    hours, moves = own_model(m, session).values()
    assert set(hours) == {HOME, WORK, CLUB, CABIN}
    # A stay ends with its last report, half an hour before the next place is reached.
    for place, begins in {HOME: 0.0, WORK: 8.0, CLUB: 16.0}.items():
        own = hours[place]
        parts = 3.0 * np.arange(PARTS + 1)
        usual = np.diff(np.clip(parts, begins, begins + 7.5)) / 7.5
        np.testing.assert_allclose(own[:PARTS] / own[:PARTS].sum(), usual, atol=0.02)
        np.testing.assert_allclose(own[PARTS:], 0.0, atol=1e-6)
    assert hours[CABIN][PARTS:].min() > 5.0
    assert 10.0 < moves[HOME, WORK] < 16.0, "almost as many as there were"
    for a, b in ((HOME, WORK), (WORK, CLUB), (CLUB, HOME), (CLUB, CABIN), (CABIN, HOME)):
        assert moves.pop((a, b)) > 1.5
    assert not any(moves.values())


# One lane, by hand: noise of 1 / EPS = 100 m.

EPS, NOON_S = 0.01, datetime(2024, 5, 7, 12, tzinfo=UTC).timestamp()  # a Tuesday


def table_of(mobility: Mobility, places: list[tuple[Any, float]]) -> Floats:
    """Places with how exactly they are known; nobody was there yet."""
    table = np.zeros((mobility.places, mobility.width // mobility.places))
    for row, (place, exactness) in zip(table, places, strict=False):
        row[: len(place)], row[len(place)] = place, exactness
    return table


def run_of(mobility: Mobility, table: Floats, value: Any, since_s: float = 1800.0) -> Run:
    """A run whose last release, fresh noise, was there a while before noon."""
    then = np.array([NOON_S - since_s])
    return Run.empty(1, table.shape[1] and len(value), width=mobility.width)._replace(
        values=np.array([[value]], dtype=np.float64),
        times_s=then[:, None],
        hard_at_s=then,
        learnt=table.reshape(1, -1),
    )


def released(mobility: Mobility, run: Run, noisy: Any, at_s: float = NOON_S) -> Any:
    fresh = np.array([noisy], dtype=np.float64)
    value, learnt = mobility.update(run, np.arange(1), np.array([at_s]), fresh, EPS)
    return value[0], learnt[0].reshape(mobility.places, -1)


A, B, ELSEWHERE = (0.0, 0.0), (600.0, 0.0), (0.0, 90_000.0)


@pytest.mark.parametrize("usual", ["the first by day", "the second by day"])
def test_noise_between_two_places_belongs_to_the_one_of_the_hour(usual: str) -> None:
    mobility = Mobility(Plane())
    table = table_of(mobility, [(A, 0.01), (B, 0.01)])
    day, night = 3 + 12 // 3, 3 + 0  # columns of the hours from 12 and from 0
    first, second = (0, 1) if usual == "the first by day" else (1, 0)
    table[first, day] = table[second, night] = 40.0
    run = run_of(mobility, table, ELSEWHERE)
    value, _ = released(mobility, run, (300.0, 0.0))
    assert (value[0] < 150.0) == (first == 0)
    assert abs(value[0] - 300.0) > 150.0
    at_night, _ = released(mobility, run, (300.0, 0.0), NOON_S + 12.5 * 3600.0)
    assert (at_night[0] < 150.0) == (first == 1)


@pytest.mark.parametrize("goes_to", [0, 1])
def test_noise_between_two_places_belongs_to_the_one_that_is_gone_to_from_the_last(
    goes_to: int,
) -> None:
    mobility = Mobility(Plane(), stay_s=600.0)
    table = table_of(mobility, [(A, 0.01), (B, 0.01), (ELSEWHERE, 0.01)])
    table[2, 3 + BINS + goes_to] = 20.0
    value, after = released(mobility, run_of(mobility, table, ELSEWHERE), (300.0, 0.0))
    assert abs(value[0] - (A, B)[goes_to][0]) < 150.0
    assert after[2, 3 + BINS + goes_to] == pytest.approx(21.0, abs=0.1), "and it is one move more"


def test_just_after_a_release_noise_belongs_to_the_same_place_and_later_less() -> None:
    mobility = Mobility(Plane())
    table = table_of(mobility, [(A, 1e-4), (B, 1e-4)])
    values = [
        released(mobility, run_of(mobility, table, A, since_s), (330.0, 0.0))[0][0]
        for since_s in (60.0, 7200.0, 36000.0)
    ]
    assert values[0] < values[1] < values[2]


@pytest.mark.parametrize("dim", [1, 2])
def test_places_are_means_weighted_by_exactness_and_far_noise_counts_less(dim: int) -> None:
    space: Space = Line() if dim == 1 else Plane()
    mobility = Mobility(space)
    table = table_of(mobility, [([0.0] * dim, 3e-4)])
    run = run_of(mobility, table, [0.0] * dim)
    _, near = released(mobility, run, [100.0] * dim)
    np.testing.assert_allclose(near[0, :dim], 25.0, rtol=1e-12)
    assert near[0, dim] == pytest.approx(4e-4)
    _, far = released(mobility, run, [500.0] + [0.0] * (dim - 1))
    assert far[0, dim] == pytest.approx(3e-4 + 0.5e-4), "five scales away: half as much"
    assert far[0, 0] == pytest.approx(500.0 * 0.5 / 3.5)


def test_a_new_place_takes_the_row_of_the_least_used_and_its_moves_are_forgotten() -> None:
    mobility = Mobility(Plane(), places=3)
    table = table_of(mobility, [(A, 0.01), (B, 0.01), (ELSEWHERE, 0.01)])
    table[0, 3], table[1, 3], table[2, 3] = 50.0, 5.0, 50.0
    table[:, 3 + BINS :] = [[0.0, 7.0, 2.0], [3.0, 0.0, 9.0], [4.0, 6.0, 0.0]]
    _, after = released(mobility, run_of(mobility, table, A), (-80_000.0, 0.0))
    np.testing.assert_array_equal(after[1, :2], (-80_000.0, 0.0))
    assert after[1, 2] == EPS * EPS
    assert not after[1, 3:].any()
    np.testing.assert_allclose(
        after[:, 3 + BINS :], [[0.0, 1.0, 2.0], [0.0, 0.0, 0.0], [4.0, 0.0, 0.0]], rtol=1e-3
    )


def test_what_is_long_ago_counts_less() -> None:
    mobility = Mobility(Plane(), days=30.0)
    table = table_of(mobility, [(A, 0.01), (B, 0.01)])
    table[1, 3], table[0, 3 + BINS + 1] = 10.0, 4.0
    run = run_of(mobility, table, A, since_s=30 * 86400.0)
    _, after = released(mobility, run, (5.0, 5.0))
    assert after[1, 3] == pytest.approx(10.0 / math.e)
    assert after[0, 3 + BINS + 1] == pytest.approx(4.0 / math.e)
    assert after[1, 2] == 0.01, "but places stay where they are"


@steadily
@given(
    st.sampled_from([0.0, -60.17, 89.0, 89.9999, -90.0, 90.0]),
    st.sampled_from([0.0, 180.0, -179.9999, 24.9]),
    st.sampled_from([1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.1]),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["sphere", "plane", "line"]),
    st.booleans(),
)
def test_noise_is_never_moved_further_than_the_reach(
    lat: float, lon: float, eps: float, seed: int, place: str, group: bool
) -> None:
    space, rng, lanes = SPACES[place], np.random.default_rng(seed), 100
    dim = len(space.coordinates)

    def around(count: int) -> Floats:
        off = rng.normal(size=(count, dim)) * rng.choice([0.3, 3.0, 10.0], (count, 1)) / eps
        if place != "sphere":
            return space.snap(off)
        x = np.broadcast_to([lat, lon], (count, 2))
        u = rng.uniform(1e-9, 1.0, (count, space.uniforms))
        return space.noise(space.snap(x), eps / rng.choice([1.0, 3.0]), u)

    model = None
    if group:
        model = MobilityModel(
            *("any", around(5), eps**2 * 10.0 ** rng.uniform(-3.0, 6.0, 5)),
            *(rng.uniform(0.0, 9.0, (5, BINS)), rng.uniform(0.0, 9.0, (5, 5))),
        )
    mobility = Mobility(space, places=3, reach=float(rng.choice([0.5, 6.2, 20.0])), model=model)
    table = np.zeros((lanes, 3, mobility.width // 3))
    for i in range(3):
        table[:, i, :dim] = around(lanes)
    table[:, :, dim] = eps**2 * 10.0 ** rng.uniform(-3.0, 6.0, (lanes, 3))
    table[:, :, dim + 1 : dim + 1 + BINS + 3] = rng.uniform(0.0, 1e4, (lanes, 3, BINS + 3))
    if group:
        table[:, :, -1] = rng.integers(0, 6, (lanes, 3))
    learnt = table.reshape(lanes, -1)
    assert mobility.find_fault(learnt) is None
    at_s = np.full(lanes, 1.7e9)
    run = Run.empty(lanes, dim, width=mobility.width)._replace(
        values=around(lanes)[:, None],
        times_s=at_s[:, None] - 60.0,
        hard_at_s=at_s - 7200.0,
        learnt=learnt,
    )
    fresh = around(lanes)
    value, after = mobility.update(run, np.arange(lanes), at_s, fresh, eps)
    # Rounding of doubles on top, in coordinates of this size.
    allowed = mobility.reach / eps * (1.0 + 1e-9) + 1e-6
    assert space.distance(fresh, value).max() <= allowed
    assert mobility.find_fault(after) is None, "what it learns can be saved and restored"
    assert np.isfinite(mobility.chances(run._replace(learnt=after), at_s + 9.0)).all()


@pytest.mark.parametrize("group", [False, True])
def test_lanes_without_a_history_learn_as_if_they_were_alone(group: bool) -> None:
    model = group_model(Sphere()) if group else None
    mobility, rng = Mobility(model=model), np.random.default_rng(2)
    fresh = mobility.space.snap(rng.uniform([-80, -180], [80, 180], (7, 2)))
    fresh[5] = (60.171, 24.941)  # where the group is
    at_s, eps = np.full(7, 1.7e9), rng.uniform(1e-4, 1e-2, 7)
    new = Run.empty(7, 2, width=mobility.width)
    alone = mobility.update(new, np.arange(7), at_s, fresh, eps)
    known = np.array([0, 3, 4])
    learnt, hard_at_s, values = new.learnt.copy(), new.hard_at_s.copy(), new.values.copy()
    learnt[known], hard_at_s[known] = alone[1][known], at_s[0] - 60.0
    values[known, 0] = fresh[known]
    times_s = np.where(np.isfinite(hard_at_s), at_s - 30.0, np.nan)[:, None]
    mixed = new._replace(learnt=learnt, hard_at_s=hard_at_s, values=values, times_s=times_s)
    value, after = mobility.update(mixed, np.arange(7), at_s, fresh, eps)
    others = np.setdiff1d(np.arange(7), known)
    assert value[others].tobytes() == alone[0][others].tobytes()
    assert after[others].tobytes() == alone[1][others].tobytes()
    assert np.isfinite(after).all()


# A model of a group.


def two_places(**changed: Any) -> MobilityModel:
    hours = np.zeros((2, BINS))
    hours[0, 4], hours[1, 0] = 10.0, 10.0  # the first at noon, the second at night
    parts: dict[str, Any] = {
        "name": "two",
        "places": [A, B],
        "exactness": [0.01, 0.01],
        "hours": hours,
        "moves": [[0.0, 5.0], [2.0, 0.0]],
    }
    return MobilityModel(**(parts | changed))


def test_the_first_noise_of_all_is_pulled_to_a_place_of_the_group_by_the_hour() -> None:
    mobility = Mobility(Plane(), model=two_places())
    run = Run.empty(1, 2, width=mobility.width)
    value, after = released(mobility, run, (300.0, 0.0))
    assert value[0] < 150.0
    at_night, _ = released(mobility, run, (300.0, 0.0), NOON_S + 12.5 * 3600.0)
    assert at_night[0] > 450.0
    assert after[0, -1] == 1.0, "it is one's own from now on"
    assert after[0, 3 : 3 + BINS].sum() > 0.0, "where the group's hours are the first"
    far, alone = released(mobility, run, (50_000.0, 0.0))
    np.testing.assert_array_equal(far, (50_000.0, 0.0))
    assert alone[0, -1] == 0.0
    alone_too = Mobility(Plane())
    nobody, _ = released(alone_too, Run.empty(1, 2, width=alone_too.width), (300.0, 0.0))
    np.testing.assert_array_equal(nobody, (300.0, 0.0))


def test_a_second_place_of_the_group_begins_with_its_moves_and_is_there_once() -> None:
    mobility = Mobility(Plane(), model=two_places())
    _, first = released(mobility, Run.empty(1, 2, width=mobility.width), (10.0, 0.0))
    run = run_of(mobility, first, A)
    _, second = released(mobility, run, (610.0, 5.0))
    np.testing.assert_array_equal(np.sort(second[:, -1])[-2:], (1.0, 2.0))
    one, other = (
        int(i) for i in (second[:, -1] == 1.0, second[:, -1] == 2.0) for i in [i.argmax()]
    )
    assert second[one, 3 + BINS + other] == pytest.approx(1.0 + 1.0), "the group's and this one"
    assert second[other, 3 + BINS + one] == pytest.approx(1.0)
    _, third = released(mobility, run_of(mobility, second, B), (580.0, -20.0))
    assert np.count_nonzero(third[:, 2]) == 2
    assert np.count_nonzero(third[:, -1]) == 2


def test_ones_own_noise_outweighs_a_model_that_is_wrong() -> None:
    mobility = Mobility(Plane(), model=two_places())
    run, table = Run.empty(1, 2, width=mobility.width), None
    for i in range(40):  # 150 m beside it
        at_s = NOON_S + 3600.0 * i
        value, table = released(mobility, run, (0.0, 150.0), at_s)
        run = run_of(mobility, table, value)._replace(
            times_s=np.array([[at_s]]), hard_at_s=np.array([at_s])
        )
    assert value[1] == pytest.approx(150.0, abs=25.0)


def test_where_somebody_goes_next_by_their_own_moves_and_by_the_groups() -> None:
    mobility = Mobility(Plane(), model=two_places())
    table = table_of(mobility, [(A, 0.01), (B, 0.01), (ELSEWHERE, 0.01)])
    table[0, 3 + BINS + 2] = 9.0
    own = run_of(mobility, table, A)
    at_s = np.array([NOON_S])
    np.testing.assert_array_equal(mobility.towards(own, at_s)[0], ELSEWHERE)
    others_run = Run.empty(1, 2)._replace(values=np.array([[A]]), times_s=own.times_s)
    np.testing.assert_array_equal(mobility.towards(others_run, at_s)[0], B)
    assert np.isnan(Mobility(Plane()).towards(others_run, at_s)).all(), "nothing is known"
    nothing = Run.empty(1, 2, width=mobility.width)
    assert np.isnan(mobility.towards(nothing, at_s)).all()
    assert np.isnan(mobility.towards(Run.empty(1, 2), at_s)).all()


def test_what_was_learnt_of_ones_own_releases_is_a_model_too() -> None:
    m = sharp("UTC")
    session = weeks_of_habits(m, "UTC", MONDAY, 15)
    assert isinstance(m.prediction, Mobility)
    model = m.prediction.model_of(session.run, "mine")
    begun = sharp("UTC", model=model)
    at_s = np.array([datetime(2024, 6, 4, 10, tzinfo=UTC).timestamp()])
    assert isinstance(begun.prediction, Mobility)
    seen = Run.empty(1, 2)._replace(values=np.array([[HOME]]), times_s=at_s[:, None] - 60.0)
    np.testing.assert_allclose(begun.prediction.towards(seen, at_s)[0], WORK, atol=1.0)


def test_models_are_told_apart_checked_and_read_only() -> None:
    one, same = two_places(), two_places()
    other = two_places(exactness=[0.01, 0.02])
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert repr(one) == f"<MobilityModel 'two': 2 places, {one.digest}>"
    assert one.digest != other.digest
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301  # our own bytes
    with pytest.raises(ValueError, match="read-only"):
        one.places[0] = 7.0
    prints = {fingerprint(Mobility(Plane(), model=model)) for model in (one, other, None)}
    assert len(prints) == 3
    assert one.digest in repr(Mobility(Plane(), model=one))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": " "}, "needs a name"),
        ({"name": "two\nlines"}, "one line"),
        ({"licence": 7}, "one line"),
        ({"places": []}, "1 to 256 places"),
        ({"places": [[1.0, 2.0, 3.0]] * 2}, "one or two coordinates"),
        ({"places": [A, (math.nan, 0.0)]}, "finite"),
        ({"places": [A, "somewhere"]}, "must be numbers"),
        ({"exactness": [0.01, 0.0]}, "above 0"),
        ({"exactness": [0.01]}, "must have the shape"),
        ({"hours": np.zeros((2, 6))}, "must have the shape"),
        ({"moves": [[0.0, -1.0], [0.0, 0.0]]}, "numbers from 0"),
    ],
    ids=repr,
)
def test_a_model_that_means_nothing_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        two_places(**wrong)


# States from outside.

HOSTILE = {"NaN": math.nan, "infinite": -math.inf, "huge": 1e308, "negative": -7.0, "half": 0.5}


@pytest.mark.parametrize("number", HOSTILE)
@pytest.mark.parametrize("group", [False, True])
def test_a_hostile_number_in_what_was_learnt_is_refused_or_harmless(
    group: bool, number: str
) -> None:
    model = group_model(Sphere()) if group else None
    m = whole_day(PRIVACY, window=Day("UTC"), prediction=Mobility(places=3, model=model))
    data = people(m.space, [40], 7)
    session = m.session(seed=3)
    live(session, data.points, data.at_s)
    state = json.dumps(session.to_state(), allow_nan=False)
    later = datetime.fromtimestamp(float(data.at_s[-1]) + 5 * 86400.0, UTC)
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
    # A negative latitude or longitude is a place; half a place of a model is none.
    every = {"negative": m.width - 3 * 2, "half": 3 * group}
    assert refused == every.get(number, m.width)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"places": 0}, {"places": 2.0}, {"reach": 0.0}, {"habit": -0.1}, {"silence_s": math.inf}),
        *({"stay_s": 0.0}, {"moves": math.nan}, {"sure": -1.0}, {"days": 0.0}),
        *({"time_zone": "Europe/Nowhere"}, {"space": "sphere"}, {"model": "group.npz"}),
        {"space": Line(), "model": two_places()},
        {"model": two_places()},  # its places are no degrees
    ],
    ids=repr,
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Mobility(**wrong)


def test_it_must_know_the_space_of_the_mechanism() -> None:
    with pytest.raises(PartError, match=r"write Mobility\(space\)"):
        whole_day(PRIVACY, space=Plane(), prediction=Mobility())


def test_it_is_a_member_of_ensembles() -> None:
    members = (Mobility(Plane()), Parrot(), PlaceMemory(Plane()))
    m = whole_day(PRIVACY, space=Plane(), prediction=Ensemble(Plane(), members))
    session = m.session(seed=1)
    data = people(m.space, [60], 7)
    live(session, data.points, data.at_s)
    assert Session.from_state(m, session.to_state()).run.learnt.any()
