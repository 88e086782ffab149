"""Settings in a file: what is written is read, and what makes no sense is refused."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from hereish.core.settings import MechanismSettings
from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.evaluation import settings_file
from hereish.traces.files import sanitize_files
from tests.support.terminal import Terminal

PLAIN = MechanismSettings(math.log(10), 100.0, 2500.0, eta=0.3, gamma=1.5, prediction_rate=0.8)
SKIPPING = replace(
    PLAIN,
    level=math.log(4),
    radius_m=200.0,
    skip_kmh=30.0,
    skip_limit_m=9000.0,
    skip_since="tested",
)

DAILY = MechanismSettings(
    math.log(10), 100.0, preset="whole-day", every_s=900.0, numbers={"near": 9.5, "habit": 0.0}
)
WALKER = replace(DAILY, preset="walker", every_s=None, accuracy_m=2500.0)
PLANNED = replace(PLAIN, preset="paper-rate", accuracy_m=None, reports=30)
EVERY = {
    "plain": PLAIN,
    "skipping": SKIPPING,
    "whole-day": DAILY,
    "walker": WALKER,
    "paper-rate": PLANNED,
    "linear": replace(PLAIN, prediction="linear"),
    "whole-day, ensemble": replace(DAILY, prediction="ensemble"),
}


@pytest.mark.parametrize("one", EVERY.values(), ids=EVERY)
def test_what_is_written_is_read(tmp_path: Path, one: MechanismSettings) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(
        settings_file.format_settings(one, {"data": 'a "set" \\ of data'}, {"tuned_rate": 0.01})
    )
    assert settings_file.read(path) == one
    assert "derived from them" in path.read_text()


def test_the_mechanism_is_the_one_that_the_settings_say() -> None:
    m = SKIPPING.build()
    assert m.privacy.eps_per_m == pytest.approx(math.log(4) / 200)
    assert m.skip is not None
    assert (m.skip.kmh, m.skip.limit_m, m.skip.since) == (30.0, 9000.0, "tested")  # type: ignore[attr-defined]  # SkipBySpeed
    assert PLAIN.build().skip is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("eta = 0.3", "eta = -1", r"\[mechanism\] eta must lie between 0 and 1000, found -1"),
        ("eta = 0.3", 'eta = "much"', r"\[mechanism\] eta must be a number"),
        ("eta = 0.3", "", r"\[mechanism\] eta must be a number, found None"),
        ("eta = 0.3", "eta = nan", "must lie between"),
        ("gamma", "gemma", r"unknown key gemma in \[mechanism\]"),
        ("[promise]", "[promises]", r"unknown table \[promises\]"),
        ("prediction_rate = 0.8", "prediction_rate = 1.5", "between 0 and 1"),
        ("restart_after_passed_test = true", "restart_after_passed_test = 1", "true or false"),
        ("[promise]", "[promise", "is not TOML"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "settings.toml"
    text = settings_file.format_settings(SKIPPING, {}, {})
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ParameterError, match=words):
        settings_file.read(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"whole-day"', '"whole-night"', r"\[preset\] name must be one of whole-day, frequent"),
        ("near = 9.5", "nearly = 9.5", r"unknown key nearly in \[numbers\]; expected near, "),
        ("near = 9.5", "near = true", r"\[numbers\] near must be a number"),
        ("near = 9.5", "near = inf", "must lie between"),
        ("near = 9.5", "near = 1e7", r"\[numbers\] near must lie between -1e\+06 and 1e\+06"),
        ("near = 9.5", "more_often = 1e5", r"\[numbers\] more_often must lie between -10 and 10"),
        ("near = 9.5", "near = -1", "near_m must be a finite number above 0"),
        ("every_s = 900.0", "every_s = 0", r"\[preset\] every_s must lie between"),
        ("every_s = 900.0", "eta = 0.5", "the preset whole-day has no eta"),
        ("every_s = 900.0", "reports = 2.5", "whole number"),
        ("[numbers]", "[skip]", r"unknown table \[skip\]; expected promise, preset, numbers"),
        ("[promise]", "[about]", r"has no table \[promise\]"),
    ],
)
def test_presets_that_make_no_sense_are_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = tmp_path / "settings.toml"
    text = settings_file.format_settings(DAILY, {}, {})
    text = text.split("[about]")[0]
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ParameterError, match=words):
        settings_file.read(path)


def test_a_preset_with_what_the_file_cannot_hold_is_refused() -> None:
    with pytest.raises(ParameterError, match="no quiet hours"):
        settings_file.format_settings(replace(DAILY, quiet="23:00-06:00"), {}, {})


def test_sanitize_takes_them(hereish: Terminal, tmp_path: Path) -> None:
    path, source = tmp_path / "settings.toml", tmp_path / "in.csv"
    path.write_text(settings_file.format_settings(SKIPPING, {}, {}))
    hereish("sample", "-o", source, "--users", 3)
    out = tmp_path / "out.csv"
    done = hereish("sanitize", source, "-o", out, "--settings", path, "--seed", 3, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["untested"] > 0
    sanitize_files([source], tmp_path / "same.csv", SKIPPING.build(Day("UTC")), seed=3)
    assert out.read_bytes() == (tmp_path / "same.csv").read_bytes()
    rows = csv.DictReader(out.read_text().splitlines())
    spent: dict[str, float] = {}
    for row in rows:
        spent[row["user"]] = spent.get(row["user"], 0.0) + float(row["cost"])
    assert max(spent.values()) <= math.log(4) / 200


@pytest.mark.parametrize("option", ["--accuracy", "--reports", "--level", "--skip-speed"])
def test_settings_and_options_do_not_mix(hereish: Terminal, tmp_path: Path, option: str) -> None:
    path, source = tmp_path / "settings.toml", tmp_path / "in.csv"
    path.write_text(settings_file.format_settings(PLAIN, {}, {}))
    hereish("sample", "-o", source)
    value = {"--accuracy": "3km", "--reports": "30", "--level": "ln 4", "--skip-speed": "off"}
    args = ("--settings", path, option, value[option])
    done = hereish("sanitize", source, "-o", tmp_path / "out.csv", *args)
    assert done.code == 2
    assert f"leave out {option}" in done.err


def test_quiet_hours_are_added_to_the_settings_of_a_file(hereish: Terminal, tmp_path: Path) -> None:
    path, source = tmp_path / "settings.toml", tmp_path / "in.csv"
    path.write_text(settings_file.format_settings(DAILY, {}, {}))
    hereish("sample", "-o", source, "--users", 3)
    args = ("--settings", path, "--quiet-hours", "7:00-12:30", "--seed", 3)
    done = hereish("sanitize", source, "-o", tmp_path / "out.csv", *args)
    assert done.code == 0, done.err
    quiet = replace(DAILY, quiet="07:00-12:30")
    for name, one in (("same.csv", quiet), ("other.csv", DAILY)):
        sanitize_files([source], tmp_path / name, one.build(Day("UTC")), seed=3)
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "same.csv").read_bytes()
    assert (tmp_path / "out.csv").read_bytes() != (tmp_path / "other.csv").read_bytes()


@pytest.mark.parametrize("which", ["plain", "walker", "paper-rate"])
@pytest.mark.parametrize("command", ["plan", "sanitize", "user"])
def test_quiet_hours_need_settings_that_are_spent_by_the_clock(
    hereish: Terminal, tmp_path: Path, which: str, command: str
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(settings_file.format_settings(EVERY[which], {}, {}))
    words = {
        "plan": ("plan",),
        "sanitize": ("sanitize", "in.csv", "-o", tmp_path / "out.csv"),
        "user": ("user", "add", "alice"),
    }
    done = hereish(*words[command], "--settings", path, "--quiet-hours", "23:00-06:30")
    assert done.code == 2
    assert "leave out --quiet-hours, or give a file of the preset whole-day" in done.err


def test_a_file_that_is_not_there_is_named(hereish: Terminal, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    hereish("sample", "-o", source)
    done = hereish("sanitize", source, "-o", tmp_path / "out.csv", "--settings", "nowhere.toml")
    assert done.code == 1
    assert "nowhere.toml" in done.err


def test_tune_writes_a_file_that_sanitize_takes(hereish: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    args = ("--trials", 4, "--p", 0.5, "--picture", tmp_path / "front.png", "--json")
    done = hereish("tune", "-o", path, *args)
    assert done.code == 0, done.err
    assert "derived from them" in done.err
    told = json.loads(done.out)
    assert told["about"]["data"] == "synthetic"
    assert told["measured"]["tuned_rate"] < told["measured"]["independent_rate"]
    assert (settings_file.read(path).accuracy_m or 0.0) > 0
    assert (tmp_path / "front.png").exists()


def test_tune_writes_the_numbers_of_a_preset(hereish: Terminal, tmp_path: Path) -> None:
    path, source = tmp_path / "settings.toml", tmp_path / "in.csv"
    args = ("--preset", "whole-day", "--every", "1h", "--every", "30min", "--trials", 4)
    done = hereish("tune", "-o", path, *args)
    assert done.code == 0, done.err
    assert "every 30 min" in done.out
    assert "derived from them" in done.err
    tuned = settings_file.read(path)
    assert tuned.preset == "whole-day"
    assert tuned.numbers is not None
    assert "per_half_hour" in tuned.numbers
    hereish("sample", "-o", source, "--users", 3)
    done = hereish("sanitize", source, "-o", tmp_path / "out.csv", "--settings", path)
    assert done.code == 0, done.err


def test_tune_finds_the_noise_of_a_walker(hereish: Terminal, tmp_path: Path) -> None:
    source, path = tmp_path / "in.csv", tmp_path / "settings.toml"
    hereish("sample", "-o", source, "--users", 12, "--points", 500)
    args = ("--preset", "walker", "--p", 0.2, "--p", 0.5, "--sampling", "authors", "--memory")
    done = hereish("tune", source, "-o", path, *args, "--trials", 4, "--json")
    assert done.code == 0, done.err
    measured = json.loads(done.out)["measured"]
    for p in ("0_2", "0_5"):
        assert measured[f"p_{p}_tuned_rate"] < measured[f"p_{p}_independent_rate"]
    tuned = settings_file.read(path)
    assert 500 < (tuned.accuracy_m or 0.0) < 6000
    assert json.loads(done.out)["about"]["memory"] is True


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--every", "30min"), "--every needs a --preset"),
        (("--memory",), "--memory needs a --preset"),
        (("--p", "0", "--p", "1"), "several --p need a --preset"),
        (("--preset", "walker", "--every", "30min"), "--every is for presets that pace"),
        (("--preset", "walker", "--reports", "30"), "leave out --reports"),
        (("--preset", "walker", "--skip", "hard"), "leave out --skip"),
        (("--preset", "walker", "--picture", "x.png"), "--picture is of the paper's"),
        (("--preset", "whole-day", "--memory"), "leave out --memory"),
        (("--preset", "whole-day", "--accuracy", "3km"), "is not tuned for an accuracy"),
    ],
)
def test_what_tune_cannot_do_is_said(
    hereish: Terminal, tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    done = hereish("tune", "-o", tmp_path / "settings.toml", "--trials", 4, *args)
    assert done.code == 2
    assert words in done.err
    assert not (tmp_path / "settings.toml").exists()


def test_settings_that_the_file_cannot_hold_are_refused() -> None:
    by_reports = MechanismSettings(math.log(10), 100.0, reports=30)
    with pytest.raises(ParameterError, match="noise_accuracy_m"):
        settings_file.format_settings(by_reports, {}, {})
