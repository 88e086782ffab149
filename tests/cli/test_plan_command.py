from __future__ import annotations

import json
import math

import numpy as np
import pytest

import hereish
from hereish.forecast import outlook
from tests.support.terminal import in_a_process

PRIVACY = hereish.Privacy(level=math.log(10), radius_m=100)


def made(m: hereish.PredictiveMechanism, passes: float) -> int:
    """How many reports really fit if every test gets this uniform."""
    uniforms = np.full((200, m.uniforms), 0.5)
    uniforms[:, 0] = passes
    out = hereish.sanitize(
        m, np.full((200, 2), 10.0), np.arange(200.0), [0, 200], uniforms=uniforms
    )
    return int(out.released.sum())


@pytest.mark.parametrize("accuracy_m", [1000.0, 2000.0, 3000.0, 5000.0])
def test_the_numbers_of_reports_are_those_that_fit(accuracy_m: float) -> None:
    m = hereish.fixed_utility(PRIVACY, accuracy_m)
    expected = outlook(m)
    assert expected.reports_if_all_are_hard == made(m, 1 - 2**-53)
    assert expected.reports_if_all_are_easy == made(m, 2**-53)
    alone = hereish.independent(PRIVACY, accuracy_m=accuracy_m)
    assert expected.reports_of_independent_noise == made(alone, 0.5)
    assert outlook(alone).reports_if_all_are_hard == made(alone, 0.5)


def test_noise_is_as_far_as_it_says() -> None:
    m = hereish.independent(PRIVACY, reports=30)
    expected = outlook(m)
    x = np.tile([60.0, 25.0], (300_000, 1))
    out = hereish.sanitize(m, x, np.zeros(len(x)), np.arange(len(x) + 1), seed=1)
    error_m = m.space.distance(x, out.value)
    assert error_m.mean() == pytest.approx(expected.noise_mean_m, rel=0.01)
    assert np.mean(error_m <= expected.noise_90_m) == pytest.approx(0.9, abs=0.003)


def test_what_an_observer_can_tell_is_the_level_within_the_radius() -> None:
    near, radius, far = outlook(hereish.fixed_rate(PRIVACY, 30)).tells
    assert radius.factor == pytest.approx(10.0)
    assert radius.even_odds_become == pytest.approx(10 / 11)
    assert near.factor == pytest.approx(math.sqrt(10.0))
    assert far.even_odds_become == pytest.approx(1.0, abs=1e-9)


def test_plan_speaks_plainly() -> None:
    done = in_a_process("plan", "--accuracy", "3km")
    assert done.returncode == 0
    for words in ("17 reports", "5.63%", "46.5%", "100 m apart:   90.9% (10 to 1)", "1.55 km"):
        assert words in done.stdout


def test_plan_states_a_second_promise_where_there_is_one() -> None:
    alone = ("plan", "--mechanism", "independent", "--reports", "30")
    said = in_a_process(*alone).stdout
    assert "A second promise, besides the first. For the reports of each day" in said
    assert "at most 3.42 times as likely from one trace as from any one other" in said
    assert "plus a probability of 1e-06" in said
    numbers = json.loads(in_a_process(*alone, "--json").stdout)["second_promise"]
    assert math.exp(numbers["level"]) == pytest.approx(3.42, abs=0.01)
    assert numbers["delta"] == 1e-6
    whole_day = in_a_process("plan", "--json").stdout
    assert json.loads(whole_day)["second_promise"] is None


def test_plan_of_very_many_reports_ends_well() -> None:
    done = in_a_process("plan", "--mechanism", "independent", "--reports", "50000", "--json")
    assert done.returncode == 0, done.stderr
    assert 0.0 < json.loads(done.stdout)["second_promise"]["level"] < 0.1


def test_plan_gives_the_same_numbers_to_programs() -> None:
    done = in_a_process(
        "plan", "--reports", "30", "--level", "ln 10", "--radius", "0.1km", "--json"
    )
    numbers = json.loads(done.stdout)
    assert numbers["eps_per_m"] == pytest.approx(math.log(10) / 100)
    assert numbers["reports_of_independent_noise"] == 24
    huge = json.loads(in_a_process("plan", "--reports", "3", "--level", "999", "--json").stdout)
    assert huge["tells"][2]["factor"] is None, "infinity is not in JSON"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--accuracy", "3"), "'3' has no unit"),
        (("plan", "--mechanism", "independent"), "(--reports 30), found neither"),
        (("plan", "--accuracy", "3km", "--reports", "3"), "found both"),
        (("plan", "--accuracy", "50m"), "ask for 168.9 m or more"),
        (("plan", "--reports", "0"), "from 1, found 0"),
        (("fly",), "No such command 'fly'"),
    ],
)
def test_a_usage_error_has_no_traceback(arguments: tuple[str, ...], words: str) -> None:
    done = in_a_process(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_plan_adds_days_up_to_months_and_years() -> None:
    budgets = ("--budget", "ln 10/day", "--budget", "ln 1000/month", "--budget", "ln 1e5/forever")
    done = in_a_process("plan", *budgets, "--json")
    assert done.returncode == 0, done.stderr
    levels = {one["period"]: one["level"] for one in json.loads(done.stdout)["adds_up"]}
    assert levels == {"a day": math.log(10), "a month": math.log(1000), "a year": math.log(1e5)}
    done = in_a_process("plan", "--budget", "ln 10/day", "--level", "ln 4")
    assert done.returncode == 2
    assert "--budget says what --level says: leave out one of them" in done.stderr
    done = in_a_process("plan", "--budget", "ln 10/24h", "--json")
    assert done.returncode == 0, done.stderr
    (limit,) = json.loads(done.stdout)["limits"]
    assert limit == {"covers": "the reports of any 24 hours", "level": math.log(10)}
    done = in_a_process("plan", "--budget", "ln 10/24h")
    assert "limited for the reports of any 24 hours" in " ".join(done.stdout.split())


def test_an_observer_is_asked_for_homes() -> None:
    """More nights tell more: of independent noise at home almost everything."""
    options = ("--mechanism", "independent", "--reports", "48", "--level", "40", "--observer", "1")
    done = in_a_process("plan", *options, "--json")
    assert done.returncode == 0, done.stderr
    homes = json.loads(done.stdout)["homes_found_within_200_m"]
    assert list(homes) == ["1", "7", "28"]
    assert homes["28"] == 1.0
    told = in_a_process("plan", *options, "--nights", "2", "--nights", "1").stdout
    assert "finds the homes of so many of 1 made-up people within 200 m" in told
    assert told.index("after 1 night ") < told.index("after 2 nights ")
    assert "after 28 nights" not in told
    refused = in_a_process("plan", "--nights", "2")
    assert refused.returncode == 2
    assert "--observer PEOPLE" in refused.stderr
