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


@pytest.mark.parametrize("one", [PLAIN, SKIPPING], ids=["plain", "skipping"])
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


def test_settings_that_the_file_cannot_hold_are_refused() -> None:
    by_reports = MechanismSettings(math.log(10), 100.0, reports=30)
    with pytest.raises(ParameterError, match="noise_accuracy_m"):
        settings_file.format_settings(by_reports, {}, {})
