"""When a budget will be gone, in the words of `hereish plan`, and what would last instead."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from hereish.cli._formatting import format_duration
from tests.support.terminal import Done, Terminal

NOON = "the budget will be gone between 1"
Plan = Callable[[str], Done]


@pytest.fixture(scope="module")
def plan() -> Iterator[Plan]:
    """`hereish plan` with some options. It says the same each time, so it is run once for each."""
    with pytest.MonkeyPatch.context() as patch:
        hereish = Terminal(patch)
        yield cache(lambda said: hereish("plan", *shlex.split(said)))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("--accuracy 3km", (NOON, "(at 06:00 if every guess fails)", "released until midnight")),
        ("--accuracy 3km --on-exhausted predict", (NOON, "repeated, untested, until midnight")),
        ("--accuracy 7km", ("lasts the day", "(until 14:00 if every guess fails)")),
        ("--accuracy 3km --every 2h", ("a report every 2 h", "the day, even if every guess fails")),
        ("--accuracy 3km --every 3d", ("every 3 days the budget lasts the day",)),
        ("--accuracy 5km", ("lasts the day on", "% of ordinary days", "if every guess fails")),
        ("--accuracy 3km --every 0", ("As every fix is a report,", "or after 12 if every guess")),
        (
            "--accuracy 3km --every 10s",
            ("every 10 s", " reports, typically ", " min), or after 12 "),
        ),
        ("--accuracy 3km --window none", ("after 2", " h), or after 12 ", "released ever again")),
        ("--reports 3000 --window none", ("lasts for more than 1500 reports",)),
        ("--accuracy 3km --window 12h", ("each window of 12 h in ", "until the next window")),
        ("--accuracy 3km --window 10min", ("lasts each window of 10 min, even if every",)),
        ("--accuracy 200m", ("pays for the first report ever and no other",)),
        ("--reports 17 --mechanism independent", ("will be gone at 08:30; after that nothing",)),
        ("--reports 48 --mechanism independent", ("the budget lasts the day.",)),
        ("--accuracy 3km --skip-speed 3km/h", ("gone between 17:",)),
        ("", ("48 reports per day", "the budget lasts the day, even if every guess fails.")),
        ("--every 0", ("As every fix is a report, the budget lasts the day",)),
        ("--preset whole-day --accuracy 500m", ("the budget will be gone between 0",)),
        ("--preset taxi", ("the budget will be gone between", "(at 07:00 if every guess fails)")),
    ],
)
def test_plan_says_when_the_budget_will_be_gone(
    plan: Plan, said: str, words: tuple[str, ...]
) -> None:
    done = plan(said)
    assert done.code == 0, done.err
    for part in (*words, "a forecast from these settings alone", "made-up ordinary days"):
        assert part in done.out


@pytest.mark.parametrize(
    "said",
    [
        "--accuracy 3km",
        "--accuracy 3km --every 1h --level 'ln 10'",
        "--reports 30 --on-exhausted predict --time-zone Asia/Tokyo",
        "--accuracy 3km --mechanism independent",
        "--accuracy 3km --window 12h",
        "--accuracy 3km --every 0",
        "--accuracy 3km --skip-speed 3km/h",
        "--accuracy 400m --radius 20m",
        "--preset whole-day --accuracy 500m",
        "--preset whole-day --accuracy 1km --every 2h",
        "--preset paper-utility",
        "--preset paper-rate --every 1h --reports 10",
        "--preset taxi --accuracy 1km --every 1h",
    ],
)
def test_what_it_recommends_lasts(plan: Plan, said: str) -> None:
    found = re.findall(r"^  hereish plan (.*)$", plan(said).out, re.M)
    assert found
    for line in found:
        again = plan(f"{line} --json")
        assert again.code == 0, again.err
        assert json.loads(again.out)["forecast"]["lasts_share"] >= 0.95
        assert "level" not in said or "--level 'ln 10'" in line, "what was said is said again"


def test_the_budget_that_lasts_is_recommended_first(plan: Plan) -> None:
    done = plan("--accuracy 3km --skip-speed 3km/h --every 20min")
    assert "one of:\n  hereish plan --every 20min --preset whole-day\n" in done.out


@pytest.mark.parametrize("said", ["--accuracy 7km", "", "--quiet-hours 23:00-06:30"])
def test_what_lasts_needs_no_recommendation(plan: Plan, said: str) -> None:
    assert "one of:" not in plan(said).out


def test_programs_get_the_forecast_with_its_units(plan: Plan) -> None:
    done = plan("--accuracy 3km --time-zone Europe/Helsinki --json")
    told = json.loads(done.out)["forecast"]
    assert told["interval_s"] == 1800
    assert told["time_zone"] == "Europe/Helsinki"
    assert told["ends_if_every_guess_fails"] == {"reports": 12, "after_s": 21600.0, "at": "06:00"}
    typical = told["ends_typical"]
    assert typical["after_s"] == 1800 * typical["reports"]
    assert told["ends_early"]["at"] < typical["at"] < told["ends_late"]["at"]
    assert told["lasts_share"] == 0.0


def test_plan_needs_nothing_of_the_gateway() -> None:
    code = (
        "import sys; sys.modules['sqlalchemy'] = None; sys.argv = ['hereish', 'plan', "
        "'--accuracy', '3km']; from hereish.cli import main; main()"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter and our own words
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert NOON in done.stdout


def test_durations_are_said_as_people_do() -> None:
    said = [format_duration(s) for s in (45.0, 90.0, 1800.0, 3600.0, 5400.0, 86400.0, 172800.0)]
    assert said == ["45 s", "1.5 min", "30 min", "1 h", "1.5 h", "24 h", "2 days"]
