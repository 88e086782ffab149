"""States and runs, attacked: whatever was changed in one, it hands out no budget.

A saved state or run is taken if it could have been made by the mechanism, and refused otherwise.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import threading
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish import (
    Day,
    Every,
    HereishError,
    NoReset,
    ParameterError,
    PointError,
    Privacy,
    Run,
    Session,
    SkipBySpeed,
    StateError,
    fixed_rate,
    fixed_utility,
    independent,
    sanitize,
)

steady = settings(derandomize=True, deadline=None, max_examples=300)
START = datetime(2026, 5, 5, 12, tzinfo=UTC)
PRIVACY = Privacy(math.log(10.0), 100.0)
MECHANISMS = {
    "utility": fixed_utility(PRIVACY, 3000),
    "utility by day": fixed_utility(PRIVACY, 3000, window=Day("Europe/Helsinki")),
    "rate, skipping": fixed_rate(PRIVACY, 30, skip=SkipBySpeed()),
    "independent by the hour": independent(PRIVACY, reports=9, window=timedelta(hours=1)),
}


def used(m: hereish.PredictiveMechanism, reports: int = 12) -> Session:
    session = m.session(seed=3)
    for minute in range(reports):
        try:
            session.report((60.17, 24.94), START + timedelta(minutes=7 * minute))
        except hereish.BudgetExhaustedError:
            break
    return session


@pytest.mark.parametrize("m", MECHANISMS.values(), ids=MECHANISMS.keys())
def test_a_state_that_nobody_touched_goes_on(m: hereish.PredictiveMechanism) -> None:
    for reports in (0, 1, 12, 40):
        session = used(m, reports)
        state = json.loads(json.dumps(session.to_state()))
        again = Session.from_state(m, state)
        for one, other in zip(session.run, again.run, strict=True):
            assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        assert all(not field.flags.writeable for field in again.run)


def test_a_state_of_the_first_release_of_hereish_still_goes_on() -> None:
    """As 0.1.0 wrote it: the fingerprint and the fields are part of people's files."""
    m = MECHANISMS["utility by day"]
    state = {
        "version": 1,
        "mechanism": "Privacy(level=2.302585092994046, radius_m=100.0); FixedUtility(accuracy="
        "3000.0, constants=Constants(c_noise=3.889720169867429, c_test=1.6094379124341005, "
        "eta=0.5, gamma=0.8)); Sphere(decimals=5); Parrot(); LaplaceTest(); None; "
        "Day(time_zone='Europe/Helsinki'); stop",
        "drawn": 0,
        "run": {
            "values": [[60.16993, 24.95108]],
            "times_s": [START.timestamp()],
            "hards": [True],
            "reports": 1,
            "easy": 0,
            "spent": float(m.bound.quantised(m.space.c_noise(0.9) / 3000.0)),
            "ended": False,
            "window": START.date().toordinal(),
            "hard_at_s": "nan",
            "hard_threshold": "-inf",
            "tested_at_s": "nan",
        },
    }
    assert Session.from_state(m, state).run.reports.tolist() == [1]


WEIRD: list[Any] = [
    *(None, "", "x", "nan", "inf", "-inf", True, False, -1, 0, 1, 2, 10**30, -(2**63), 2**53),
    *(0.1, -0.1, 1e-300, 1e300, math.nan, math.inf, [], [[]], [1], [[1.0, 2.0]], [[400.0, 0.0]]),
    *([["nan", "nan"]], [["nan", 1.0]], [[60.1234567, 24.9]], ["nan"], [True], {}, {"a": 1}),
]


@steady
@given(st.data())
def test_no_change_to_a_state_hands_out_budget(data: st.DataObject) -> None:
    """One field is something else. Either that is refused, or the run is one that this mechanism
    could have made: what is left of the budget is then no more than the fields say, and it is
    never passed."""
    m = MECHANISMS[data.draw(st.sampled_from(sorted(MECHANISMS)))]
    state = copy.deepcopy(used(m, data.draw(st.integers(0, 12))).to_state())
    where = data.draw(st.sampled_from([*state["run"], "version", "mechanism", "drawn", "gone"]))
    value = data.draw(st.one_of(st.sampled_from(WEIRD), st.floats(), st.integers()))
    if where in state["run"]:
        state["run"][where] = value
    elif where == "gone":
        del state["run"][data.draw(st.sampled_from(sorted(state["run"])))]
    else:
        state[where] = value
    try:
        session = Session.from_state(m, state)
    except HereishError:
        return
    run = session.run
    assert 0.0 <= run.spent[0] <= m.bound.total
    assert 0 <= run.easy[0] <= run.reports[0]
    paid, windows = Fraction(float(run.spent[0])), {int(run.window[0])}
    at = START + timedelta(hours=3)
    for minute in range(30):
        try:
            paid += Fraction(session.report((60.17, 24.94), at + timedelta(seconds=minute)).cost)
        except HereishError:
            break
        windows.add(int(session.run.window[0]))
    assert paid <= len(windows) * Fraction(m.bound.total)


@steady
@given(st.data())
def test_no_change_to_a_run_hands_out_budget_in_a_batch(data: st.DataObject) -> None:
    m = MECHANISMS[data.draw(st.sampled_from(sorted(MECHANISMS)))]
    at_s = START.timestamp() + 60.0 * np.arange(8.0)
    points = np.tile([60.17, 24.94], (8, 1))
    run = sanitize(m, points, at_s, [0, 4, 8], run=m.run(2)).run
    assert run is not None
    name = data.draw(st.sampled_from(Run._fields))
    field = np.array(getattr(run, name))
    change = data.draw(st.sampled_from(["value", "type", "shape", "none", "lanes"]))
    changed: Any = field
    if change == "value":
        number = data.draw(st.sampled_from([-1, 0, 1, 7, 2**62, math.nan, math.inf, -0.5, 1e-9]))
        with np.errstate(invalid="ignore"):
            changed = np.full_like(field, np.array(number).astype(field.dtype))
    elif change == "type":
        with np.errstate(invalid="ignore"):
            changed = field.astype(data.draw(st.sampled_from(["f4", "i4", "O", "U8", "?"])))
    elif change == "shape":
        changed = field[..., None]
    elif change == "lanes":
        changed = field[:1]
    else:
        changed = None
    try:
        out = sanitize(m, points, at_s + 3600.0, [0, 4, 8], run=run._replace(**{name: changed}))
    except HereishError:
        return
    assert (out.spent <= m.bound.total).all()
    assert change == "value" or np.array_equal(changed, field)


OTHERS = {
    "another level": fixed_utility(Privacy(2.0, 100.0), 3000),
    "another radius": fixed_utility(Privacy(math.log(10.0), 200.0), 3000),
    "another accuracy": fixed_utility(PRIVACY, 3001),
    "another window": fixed_utility(PRIVACY, 3000, window=Day("Europe/Paris")),
    "windows": fixed_utility(PRIVACY, 3000, window=Every(timedelta(days=1))),
    "a skip": fixed_utility(PRIVACY, 3000, skip=SkipBySpeed()),
    "another end": fixed_utility(PRIVACY, 3000, on_exhausted="predict"),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
def test_a_spent_run_goes_on_under_its_own_mechanism_alone(
    other: hereish.PredictiveMechanism,
) -> None:
    m = MECHANISMS["utility"]
    at_s = START.timestamp() + 60.0 * np.arange(40.0)
    points = np.tile([60.17, 24.94], (40, 1))
    out = sanitize(m, points, at_s, [0, 40], run=m.run(1))
    assert not out.released.all(), "its budget is spent"
    twin = fixed_utility(PRIVACY, 3000)
    assert not sanitize(twin, points, at_s + 3600.0, [0, 40], run=out.run).released.any()
    with pytest.raises(ParameterError, match="another mechanism, or by one with other settings"):
        sanitize(other, points, at_s + 3600.0, [0, 40], run=out.run)
    assert isinstance(m.window, NoReset)


def test_a_run_made_by_hand_is_nobodys() -> None:
    m = MECHANISMS["utility"]
    with pytest.raises(ParameterError, match="another mechanism"):
        sanitize(m, [(60.0, 25.0)], [0.0], [0, 1], run=Run.empty(1, 2))


# A report within a report: the outer one would forget what the inner one has paid.


def test_a_report_within_a_report_is_refused() -> None:
    sessions: list[Session] = []
    errors: list[str] = []

    def reporting(past: Any, at_s: float) -> None:
        if sessions:
            try:
                sessions[0].report((60.0, 25.0), START)
            except StateError as refused:
                errors.append(str(refused))

    session = fixed_utility(PRIVACY, 3000, prediction=hereish.lift(reporting)).session()
    sessions.append(session)
    done = threading.Thread(target=session.report, args=((60.0, 25.0), START), daemon=True)
    done.start()
    done.join(timeout=20.0)
    assert not done.is_alive(), "it waits for itself"
    assert len(errors) == 1
    assert session.run.reports.tolist() == [1]


# Points and times that are none.


class Lying:
    """Fails with the place in its words."""

    def __float__(self) -> float:
        raise RuntimeError("60.17123")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("60.17123")


SECRETS: list[Any] = [
    (10**400, 24.94),
    (Lying(), 24.94),
    Lying(),
    np.ma.masked_array([60.17123, 24.94], mask=[True, False]),
    ("60.17123N", 24.94),
    (60.17123 + 1j, 24.94),
    {"lat": 60.17123},
    [[60.17123], [24.94, 1.0]],
]


@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
def test_a_point_that_is_none_is_refused_without_its_words(secret: Any) -> None:
    m = MECHANISMS["utility"]
    for call in (
        lambda: m.session().report(secret, START),
        lambda: sanitize(m, secret if np.ma.isMaskedArray(secret) else [secret], [0.0], [0, 1]),
    ):
        with pytest.raises(HereishError) as told:
            call()
        error: BaseException | None = told.value
        while error is not None:
            assert "17123" not in str(error)
            assert "000000" not in str(error)
            error = error.__cause__ or error.__context__


def test_masked_rows_of_a_batch_are_not_unmasked_in_silence() -> None:
    m = MECHANISMS["utility"]
    points = np.ma.masked_array(np.full((3, 2), 60.17123), mask=False)
    assert sanitize(m, points, np.arange(3.0), [0, 3]).released.all()
    points[1, 0] = np.ma.masked
    with pytest.raises(PointError, match="row 1: part of it is masked"):
        sanitize(m, points, np.arange(3.0), [0, 3])
    times = np.ma.masked_array(np.arange(3.0), mask=[False, False, True])
    with pytest.raises(PointError, match="row 2: part of it is masked"):
        sanitize(m, points.data, times, [0, 3])


def test_times_that_are_none_are_refused() -> None:
    import pandas as pd

    m = MECHANISMS["utility by day"]
    for at in (pd.NaT, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        session = m.session()
        with pytest.raises(PointError):
            session.report((60.0, 25.0), at)
        assert session.spent == 0.0


PREDICTIONS = {
    "places": hereish.PlaceMemory(hereish.Sphere(), "Europe/Helsinki"),
    "mobility": hereish.Mobility(hereish.Sphere(), "Europe/Helsinki"),
}
NO_YEARS = [  # the last release, and the last hard one
    *((-9e10, -9.1e10), (-6e9, -9e10), (9e10, 8e10), (-9.9e10, -1e11)),
    (START.timestamp(), -9e10),
]


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("window", [hereish.Hours(24), Day("UTC"), NoReset()])
@pytest.mark.parametrize("told", NO_YEARS)
def test_a_tracker_is_given_no_times_of_which_it_can_tell_no_clock(
    told: tuple[float, float], window: hereish.Window, prediction: str
) -> None:
    """It needs them after noise was drawn, and would fail for hard reports alone."""
    m = hereish.whole_day(PRIVACY, prediction=PREDICTIONS[prediction], window=Day("UTC"))
    m = dataclasses.replace(m, window=window)
    session = used(m)
    state = json.loads(json.dumps(session.to_state()))
    last_s, hard_s = told
    state["run"] |= {"times_s": [last_s], "hard_at_s": hard_s, "tested_at_s": hard_s}
    with pytest.raises(StateError, match="years 1800 to 2500"):
        Session.from_state(m, state)
    run = session.run._replace(
        times_s=np.array([[last_s]]), hard_at_s=np.array([hard_s]), tested_at_s=np.array([hard_s])
    )
    at_s = (START + timedelta(days=1)).timestamp()
    for place in (session.run.value[0], session.run.value[0] + [0.3, 0.0]):  # easy, and hard
        with pytest.raises(ParameterError, match="years 1800 to 2500"):
            sanitize(m, [place], [at_s], [0, 1], run=run)


def test_times_that_no_window_knows_are_a_fault_of_the_state() -> None:
    m = MECHANISMS["utility by day"]
    state = json.loads(json.dumps(used(m).to_state()))
    state["run"] |= {"times_s": [-9e10], "hard_at_s": -9e10, "tested_at_s": -9e10}
    with pytest.raises(StateError, match="years 1800 to 2500"):
        Session.from_state(m, state)
