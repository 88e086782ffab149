from __future__ import annotations

import json
import math
import pickle
import threading
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

import hereish
from hereish.testing import FixedDraws, NoNoise

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)
HERE = (39.98123456, 116.31654321)
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


def test_the_ten_lines_of_the_contract() -> None:
    m = hereish.fixed_utility(PRIVACY, accuracy_m=3000)
    assert isinstance(m, hereish.PredictiveMechanism)
    session = m.session()
    report = session.report(HERE, at=NOON)
    assert report.kind == "hard"
    assert report.at is NOON
    assert report.cost == session.spent
    assert session.remaining == PRIVACY.eps_per_m - report.cost
    assert session.run.value[0].tolist() == list(report.value)
    assert session.private
    with pytest.raises(AttributeError):
        report.cost = 0.0  # type: ignore[misc]


def test_a_seeded_session_says_that_it_is_not_private() -> None:
    m = hereish.fixed_rate(PRIVACY, reports=30)
    session, twin = m.session(seed=1), m.session(seed=1)
    assert session.report(HERE, NOON) == twin.report(HERE, NOON)
    assert not session.private
    assert "NOT PRIVATE" in repr(session)
    assert "NOT PRIVATE" in session.guarantee
    assert "NOT PRIVATE" not in repr(m.session())


def test_two_secure_sessions_do_not_agree() -> None:
    m = hereish.fixed_rate(PRIVACY, reports=30)
    assert m.session().report(HERE, NOON).value != m.session().report(HERE, NOON).value


def test_the_kinds_are_hard_easy_and_untested() -> None:
    m = hereish.fixed_utility(PRIVACY, 3000, skip=hereish.SkipBySpeed(kmh=30))
    # Columns: the test, then radius, radius, bearing. Small uniforms pass the test.
    draws = FixedDraws([[0.5, 0.9, 0.9, 0.5], [0.5] * 4, [0.01, 0.5, 0.5, 0.5]])
    session = m.session(draws=draws)
    hard = session.report(HERE, NOON)
    skipped = session.report(HERE, NOON + timedelta(minutes=5))
    easy = session.report(HERE, NOON + timedelta(minutes=7))
    assert [r.kind for r in (hard, skipped, easy)] == ["hard", "untested", "easy"]
    assert hard.value == skipped.value == easy.value
    assert skipped.cost == 0.0 < easy.cost < hard.cost
    assert session.spent == hard.cost + easy.cost
    assert session.run.reports[0] == 3
    assert session.run.easy[0] == 2
    assert session.run.hard[0] == 1


def test_stop_raises_and_releases_nothing_and_says_the_numbers() -> None:
    session = hereish.independent(PRIVACY, reports=2).session()
    for minute in range(2):
        session.report(HERE, NOON + timedelta(minutes=minute))
    before = session.to_state()["run"]
    with pytest.raises(hereish.BudgetExhaustedError) as refused:
        session.report(HERE, NOON + timedelta(minutes=2))
    error = refused.value
    assert error.difference == error.requested - error.remaining > 0
    for number in (error.requested, error.remaining, error.difference):
        assert f"{number:.6g}" in str(error)
    assert session.to_state()["run"] == {**before, "ended": True}
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301  # our own


def test_predict_goes_on_for_free_and_marks_it() -> None:
    m = hereish.fixed_utility(PRIVACY, 3000, on_exhausted="predict")
    session = m.session()
    reports = [session.report(HERE, NOON + timedelta(minutes=i)) for i in range(200)]
    last = [r for r in reports if r.kind != "untested"][-1]
    assert reports[-1].kind == "untested"
    assert reports[-1].value == last.value
    assert reports[-1].cost == 0.0
    assert session.spent <= PRIVACY.eps_per_m
    assert math.fsum(r.cost for r in reports) == session.spent


BAD_POINTS = {
    "latitude above 90": (91.25, 116.31654321),
    "latitude below -90": (-90.5, 116.31654321),
    "longitude": (39.98123456, 180.75),
    "NaN": (39.98123456, math.nan),
    "infinity": (math.inf, 116.31654321),
    "one number": (39.98123456,),
    "three numbers": (39.98123456, 116.31654321, 44.44),
    "text": ("39.98123456", "somewhere"),
    "nothing": None,
}


@pytest.mark.parametrize("point", BAD_POINTS.values(), ids=BAD_POINTS.keys())
def test_a_bad_point_costs_nothing_and_is_not_repeated_in_the_error(point: object) -> None:
    session = hereish.fixed_rate(PRIVACY, 30).session()
    with pytest.raises(hereish.PointError) as refused:
        session.report(point, NOON)
    text = str(refused.value) + repr(refused.value) + repr(refused.value.__context__)
    for digits in ("91.25", "90.5", "39.98", "116.3", "180.75", "44.44", "somewhere"):
        assert digits not in text
    assert session.spent == 0.0
    assert session.run.reports[0] == 0


@pytest.mark.parametrize("at", [datetime(2026, 5, 5, 12), 1.7e9, "2026-05-05", None])  # noqa: DTZ001
def test_a_bad_time_costs_nothing(at: object) -> None:
    session = hereish.fixed_rate(PRIVACY, 30).session()
    with pytest.raises(hereish.PointError, match="nothing was spent"):
        session.report(HERE, at)  # type: ignore[arg-type]
    assert session.spent == 0.0


def test_time_that_goes_backwards_costs_nothing_and_standing_still_is_fine() -> None:
    session = hereish.fixed_rate(PRIVACY, 30).session()
    session.report(HERE, NOON)
    spent = session.spent
    with pytest.raises(hereish.PointError, match="backwards") as refused:
        session.report(HERE, NOON - timedelta(microseconds=1))
    assert "39.9" not in str(refused.value)
    assert session.spent == spent
    session.report(HERE, NOON.astimezone(timezone(timedelta(hours=8))))


def test_a_state_goes_through_json_and_comes_back_the_same() -> None:
    m = hereish.fixed_rate(PRIVACY, 30, window=hereish.Day("Europe/Helsinki"))
    session = m.session()
    assert json.loads(json.dumps(session.to_state(), allow_nan=False)) == session.to_state()
    for minute in range(5):
        session.report(HERE, NOON + timedelta(minutes=minute))
        state = json.loads(json.dumps(session.to_state(), allow_nan=False))
        session = hereish.Session.from_state(m, state)
        assert session.to_state() == state
    assert session.run.reports[0] == 5


def test_a_state_holds_releases_and_no_secret() -> None:
    session = hereish.fixed_utility(PRIVACY, 3000).session()
    session.report(HERE, NOON)
    text = json.dumps(session.to_state()) + repr(session) + repr(session.run)
    assert "39.98123" not in text
    assert "116.31654" not in text


def test_a_state_of_another_mechanism_or_a_broken_one_is_refused() -> None:
    m = hereish.fixed_rate(PRIVACY, 30)
    state = m.session().to_state()
    with pytest.raises(hereish.StateError, match="another mechanism"):
        hereish.Session.from_state(hereish.fixed_rate(PRIVACY, 31), state)
    for broken in (
        {},
        {**state, "version": 99},
        {**state, "run": {**state["run"], "spent": PRIVACY.eps_per_m * 2}},
        {**state, "run": {**state["run"], "spent": -1.0}},
        {**state, "run": {**state["run"], "spent": "nan"}},
        {**state, "run": {**state["run"], "values": [[1.0, 2.0, 3.0]]}},
        {**state, "run": {**state["run"], "reports": "many"}},
        {**state, "run": {"spent": 0.0}},
    ):
        with pytest.raises(hereish.StateError):
            hereish.Session.from_state(m, broken)


def test_threads_that_share_a_session_cannot_overspend() -> None:
    session = hereish.independent(PRIVACY, reports=50).session()
    made: list[hereish.Report] = []

    def report() -> None:
        for _ in range(20):
            try:
                made.append(session.report(HERE, NOON))
            except hereish.BudgetExhaustedError:
                return

    threads = [threading.Thread(target=report) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 50
    assert math.fsum(r.cost for r in made) == session.spent <= PRIVACY.eps_per_m


def test_a_part_that_breaks_on_a_secret_releases_nothing_and_says_nothing_of_it() -> None:
    class Fragile(hereish.LaplaceTest):
        armed = False

        def __call__(self, space, x, guess, eps, threshold, u):  # type: ignore[no-untyped-def]
            if Fragile.armed:
                raise RuntimeError(f"cannot deal with {x}")
            return super().__call__(space, x, guess, eps, threshold, u)

    session = hereish.fixed_utility(PRIVACY, 3000, test=Fragile()).session()
    Fragile.armed = True
    with pytest.raises(hereish.PartError, match="RuntimeError; nothing was released") as refused:
        session.report(HERE, NOON)
    assert "39.98" not in str(refused.value)
    assert refused.value.__context__ is None
    assert session.spent == 0.0


def test_no_noise_and_fixed_draws_say_that_they_are_not_private() -> None:
    m = hereish.fixed_utility(PRIVACY, 3000, space=NoNoise(hereish.Sphere()))
    session = m.session()
    assert session.report(HERE, NOON).value == (39.98123, 116.31654)
    assert not session.private
    assert "NOT PRIVATE" in session.guarantee
    assert "NOT PRIVATE" in repr(m.space)
    assert "NOT PRIVATE" in repr(FixedDraws([0.5]))
    with pytest.raises(hereish.ParameterError, match="1 are left"):
        FixedDraws([0.5]).uniforms(2)
    with pytest.raises(hereish.ParameterError):
        FixedDraws([1.0])


def test_a_line_takes_and_gives_one_number() -> None:
    m = hereish.fixed_rate(hereish.Privacy(1.0, 1.0), 30, eta=0.3, space=hereish.Line(grid=0.01))
    report = m.session().report(230.5, NOON)
    assert isinstance(report.value, float)
    out = hereish.sanitize(m, np.full(5, 230.5), np.arange(5.0), [0, 5])
    assert out.value.shape == (5,)


def test_draws_are_chosen_once() -> None:
    m = hereish.fixed_rate(PRIVACY, 30)
    keyed = hereish.KeyedDraws(b"k" * 32)
    for wrong in ({"seed": 1, "draws": keyed}, {"draws": keyed}, {"user": "ann"}):
        with pytest.raises(hereish.ParameterError):
            m.session(**wrong)
