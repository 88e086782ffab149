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
