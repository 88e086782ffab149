"""Presets and quiet hours on the command line, and the default: a budget that lasts the day."""

from __future__ import annotations

import csv
import io
import json
import math
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from hereish import Day, NoiseFirst, Paced, ParameterError, synthetic
from hereish.cli._mechanism_options import MechanismOptions
from hereish.cli._units import clock_hours
from hereish.core.settings import PRESETS, MechanismSettings, Preset
from tests.support.terminal import Terminal, output_of


@pytest.fixture
def day(tmp_path: Path, hereish: Terminal) -> Path:
    path = tmp_path / "day.csv"
    assert hereish("sample", "-o", path).code == 0
    return path


def sanitized(hereish: Terminal, source: Path, *options: object) -> list[dict[str, str]]:
    out = source.with_name("out.csv")
    assert output_of(hereish("sanitize", source, "-o", out, *options))
    return list(csv.DictReader(io.StringIO(out.read_text())))


def dense_log(path: Path, step_s: float) -> Path:
    """Somebody's day from seven to eleven, with a fix every few seconds."""
    clock_s = np.arange(7 * 3600.0, 23 * 3600.0, step_s)
    places = synthetic.whereabouts(1, 3, clock_s)[0]
    times = (synthetic.MIDNIGHT_S + clock_s).astype("datetime64[s]")
    rows = [f"{at}Z,{lat:.6f},{lon:.6f}" for at, (lat, lon) in zip(times, places, strict=True)]
    path.write_text("\n".join(["time,lat,lon", *rows]))
    return path


def test_the_default_lasts_the_day(hereish: Terminal, tmp_path: Path) -> None:
    """Also for a dense log, of which nothing is left out and nothing is refused."""
    log = dense_log(tmp_path / "log.csv", 20.0)
    rows = sanitized(hereish, log, "--time-zone", "Europe/Helsinki", "--seed", 1)
    assert len(rows) == len(log.read_text().splitlines()) - 1
    assert 3 <= sum(row["kind"] == "hard" for row in rows) <= 30
    evening = [row for row in rows if row["time"] > "2025-06-03T15"]
    assert len(evening) == 900
    assert all(float(row["cost"]) > 0.0 for row in evening), "there is budget left for tests"
    papers = sanitized(hereish, log, "--time-zone", "Europe/Helsinki", "--accuracy", "3km")
    assert len(papers) < 50, "the control: what the paper does ends in the first minutes"


def test_a_dense_log_is_told_about_thinning(hereish: Terminal, tmp_path: Path) -> None:
    log = dense_log(tmp_path / "log.csv", 20.0)
    told = output_of(hereish("sanitize", log, "-o", tmp_path / "a.csv"))
    assert "Nearly all reports repeat an earlier one" in told
    assert "--every 30min takes fewer points" in told
    told = output_of(hereish("sanitize", log, "-o", tmp_path / "b.csv", "--every", "30min"))
    assert "Nearly all" not in told
    assert "thinned" in told


def test_a_budget_that_does_not_last_is_told_about_the_default(
    hereish: Terminal, day: Path
) -> None:
    out = day.with_name("out.csv")
    told = output_of(hereish("sanitize", day, "-o", out, "--accuracy", "1km"))
    assert "without --accuracy and --reports the budget lasts the day." in told
    told = output_of(hereish("sanitize", day, "-o", out, "--preset", "whole-day", "--reports", 1))
    assert "refused 0 the budget was spent" in " ".join(told.split())
    told = output_of(
        hereish("sanitize", day, "-o", out, "--preset", "whole-day", "--accuracy", "400m")
    )
    assert "without --accuracy, or with a larger one, it lasts" in told
    assert "--every" not in told


def test_frequent_reports_come_every_five_minutes(hereish: Terminal) -> None:
    often = json.loads(output_of(hereish("plan", "--preset", "frequent", "--json")))
    daily = json.loads(output_of(hereish("plan", "--json")))
    assert (often["forecast"]["interval_s"], daily["forecast"]["interval_s"]) == (300.0, 1800.0)


def test_quiet_hours_are_hours_of_a_day(hereish: Terminal) -> None:
    done = hereish("plan", "--window", "12h", "--quiet-hours", "22:00-06:00")
    assert done.code == 2
    assert "--quiet-hours are hours of a day, found --window 12h" in done.err


def test_the_summary_explains_the_kinds(hereish: Terminal, day: Path) -> None:
    default = output_of(hereish("sanitize", day, "-o", day.with_name("a.csv")))
    assert "fresh noise, or its mean with places reported before" in default
    assert "a guess that was near the noise drawn: it costs a test, and no noise" in default
    papers = output_of(hereish("sanitize", day, "-o", day.with_name("b.csv"), "--reports", 30))
    assert "its mean" not in papers
    assert "a guess that passed the test" in papers


def test_quiet_hours_are_free(hereish: Terminal, tmp_path: Path) -> None:
    log = dense_log(tmp_path / "log.csv", 600.0)
    options = ("--time-zone", "Europe/Helsinki", "--quiet-hours", "9:00-12:00")
    rows = sanitized(hereish, log, *options)
    quiet = [row for row in rows if "2025-06-03T06" <= row["time"] < "2025-06-03T09"]
    assert len(quiet) == 18
    assert {(row["kind"], float(row["cost"])) for row in quiet} == {("untested", 0.0)}
    assert len({(row["lat"], row["lon"]) for row in quiet}) == 1
    assert "untested" not in {row["kind"] for row in rows if row not in quiet}


def test_the_interval_is_that_of_every(hereish: Terminal, day: Path) -> None:
    """A budget for a report every 12 hours is spent in larger parts than one per 5 minutes."""
    first = [
        float(sanitized(hereish, day, "--every", every)[0]["cost"])
        for every in ("1s", "5min", "30min", "12h")
    ]
    assert first[0] == first[1] < first[2] < first[3]
    assert first[1] < 0.7 * first[3]
    assert float(sanitized(hereish, day)[0]["cost"]) == first[2]


@pytest.mark.parametrize("preset", get_args(Preset))
def test_every_preset_can_be_used(hereish: Terminal, day: Path, preset: str) -> None:
    assert sanitized(hereish, day, "--preset", preset)
    plan = json.loads(output_of(hereish("plan", "--preset", preset, "--json")))
    assert plan["preset"] == preset
    assert PRESETS[preset].split()[-1] in " ".join(output_of(hereish("plan", "--help")).split())  # type: ignore[index]  # it is one


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--preset taxi --reports 30", "--preset taxi takes --accuracy, found --reports"),
        ("--preset paper-utility --reports 30", "takes --accuracy and --skip-speed, found --rep"),
        ("--preset paper-rate --accuracy 3km", "takes --reports and --skip-speed, found --acc"),
        ("--preset whole-day --skip-speed 3km/h", "found --skip-speed: leave out --skip-speed"),
        ("--preset walker --quiet-hours 1:00-2:00", "found --quiet-hours: leave out"),
        ("--preset taxi --mechanism independent", "--mechanism independent does not: leave out"),
        ("--preset whole-day --reports 0", "--reports must be a whole number from 1, found 0"),
        ("--preset bus", "'bus' is not one of 'whole-day'"),
        ("--skip-speed 30km/h", "--skip-speed belongs to --accuracy and --reports"),
        ("--accuracy 3km --quiet-hours 23:00-06:30", "or add --preset whole-day"),
        ("--reports 30 --quiet-hours 23:00-06:30", "leave out --reports, or add"),
        (
            "--reports 30 --mechanism independent --quiet-hours 23:00-06:30",
            "--mechanism independent has none: leave out --quiet-hours",
        ),
        ("--quiet-hours 22:00-22:00", "they must differ, found '22:00-22:00'"),
        ("--quiet-hours 24:00-06:00", "each from 00:00 to 23:59"),
        ("--quiet-hours night", "two times, such as 23:00-06:30; found 'night'"),
        ("--window none", "--window none has none that is known beforehand: leave out --window"),
        ("--preset frequent --window none", "of --preset frequent is spread"),
        ("--preset whole-day --accuracy 3km --window none", "of --preset whole-day is spread"),
        ("--settings tuned.toml --preset taxi", "leave out --preset"),
    ],
)
@pytest.mark.parametrize("command", ["sanitize", "plan"])
def test_contradictions_are_usage_errors_in_terms_of_options(
    hereish: Terminal, day: Path, command: str, options: str, words: str
) -> None:
    files = (day, "-o", day.with_name("out.csv")) if command == "sanitize" else ()
    done = hereish(command, *files, *options.split())
    assert done.code == 2
    assert words in done.err
    for field in ("accuracy_m", "skip_kmh", "every_s", "reports=", "hereish.Day", "Traceback"):
        assert field not in done.err
    assert {path.name for path in day.parent.iterdir()} == {"day.csv"}


def test_a_trace_has_no_end_that_is_known(hereish: Terminal, day: Path) -> None:
    done = hereish("sanitize", day, "-o", day.with_name("out.csv"), "--window", "trace")
    assert (done.code, "--window trace has none" in done.err) == (2, True)
    for remedy in ("--preset whole-day --reports 48", "--preset paper-utility --accuracy 3km"):
        assert f"({remedy})" in done.err
        assert sanitized(hereish, day, "--window", "trace", *remedy.split())


ACCURACIES, REPORTS = (None, "3km"), (None, 30)


@pytest.mark.parametrize("preset", [None, *get_args(Preset)])
def test_what_the_options_accept_can_be_built_and_nothing_else(preset: Preset | None) -> None:
    """The table of options agrees with what a mechanism takes: nothing is silently left out."""
    for accuracy, reports, quiet, mechanism, skip in product(
        ACCURACIES, REPORTS, (None, "23:00-06:30"), ("predictive", "independent"), (None, 3.0)
    ):
        options = MechanismOptions(
            *("ln 10", "100m", (), accuracy, reports, preset, quiet, mechanism),  # type: ignore[arg-type]  # strings of the product
            *("off" if skip is None else "3km/h", None, None, "day"),
        )
        settings = MechanismSettings(
            *(math.log(10), 100.0, accuracy and 3000.0, reports, mechanism),  # type: ignore[arg-type]  # likewise
            skip_kmh=skip,
            preset=preset,
            quiet=quiet,
        )
        try:
            m = options.mechanism_settings().build(Day("UTC"))
        except ParameterError:
            # Quiet hours without a preset that has them are not looked at by the settings.
            if quiet is None or preset is not None:
                with pytest.raises(ParameterError):
                    settings.build(Day("UTC"))
            continue
        assert m == settings.build(Day("UTC"))
        assert (quiet is not None) == (isinstance(m.budget, Paced) and m.budget.quiet is not None)
        assert (skip is not None) == (m.skip is not None)


def test_the_default_of_the_options_is_the_whole_day(hereish: Terminal) -> None:
    plan = json.loads(output_of(hereish("plan", "--json")))
    assert plan["preset"] == "whole-day"
    assert plan["forecast"]["lasts_share"] == 1.0
    assert json.loads(output_of(hereish("plan", "--accuracy", "3km", "--json")))["preset"] is None
    m = MechanismSettings(math.log(10), 100.0).build(Day("UTC"))
    assert isinstance(m.decider, NoiseFirst)


def test_plan_says_how_far_off_reports_are_over_the_day(hereish: Terminal) -> None:
    text = output_of(hereish("plan"))
    values = json.loads(output_of(hereish("plan", "--json")))
    whole, parts = values["forecast"]["error"], values["forecast"]["error_by_part"]
    assert [part["at"] for part in parts] == ["00:00", "06:00", "12:00", "18:00"]
    assert parts[0]["mean_m"] < whole["mean_m"] < parts[3]["mean_m"]
    assert f"usually within {whole['within_90_m'] / 1000:.2g} km" in text
    for part in parts:
        assert f"from {part['at']} on" in text
    assert "break-even" not in text
    ended = output_of(hereish("plan", "--preset", "whole-day", "--accuracy", "500m"))
    assert "from 18:00 on                no reports: the budget is gone" in ended


@pytest.mark.parametrize(
    ("text", "hours"),
    [("23:00-06:30", "23:00-06:30"), (" 9:05 – 10:00 ", "09:05-10:00"), ("0:00-23:59", None)],
)
def test_hours_of_the_day(text: str, hours: str | None) -> None:
    assert clock_hours(text) == hours or hours is None
