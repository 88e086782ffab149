"""Settings in a file: what is written is read, and what makes no sense is refused."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from hereish.core.windows import Day
from hereish.errors import ParameterError
from hereish.evaluation import settings
from hereish.evaluation.settings import Settings
from hereish.traces.files import sanitize_files
from tests.support.terminal import Terminal

PLAIN = Settings(math.log(10), 100.0, 2500.0, 0.3, 1.5, 0.8)
SKIPPING = Settings(math.log(4), 200.0, 2500.0, 0.3, 1.5, 0.8, 30.0, 9000.0, True)


@pytest.fixture
def hereish(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


@pytest.mark.parametrize("one", [PLAIN, SKIPPING], ids=["plain", "skipping"])
def test_what_is_written_is_read(tmp_path: Path, one: Settings) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(settings.text(one, {"data": 'a "set" \\ of data'}, {"tuned_rate": 0.01}))
    assert settings.read(path) == one
    assert "derived from them" in path.read_text()


def test_the_mechanism_is_the_one_that_the_settings_say() -> None:
    m = SKIPPING.mechanism()
    assert m.privacy.eps_per_m == pytest.approx(math.log(4) / 200)
    assert m.skip is not None
    assert (m.skip.kmh, m.skip.limit_m, m.skip.since) == (30.0, 9000.0, "tested")  # type: ignore[attr-defined]  # SkipBySpeed
    assert PLAIN.mechanism().skip is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("eta = 0.3", "eta = -1", r"\[mechanism\] eta must lie between 0 and 1000, found -1"),
        ("eta = 0.3", 'eta = "much"', r"\[mechanism\] eta must be a number"),
        ("eta = 0.3", "", r"\[mechanism\] eta must be a number, found None"),
        ("eta = 0.3", "eta = nan", "must lie between"),
        ("gamma", "gemma", r"\[mechanism\] gemma means nothing here"),
        ("[promise]", "[promises]", r"part \[promises\]"),
        ("prediction_rate = 0.8", "prediction_rate = 1.5", "between 0 and 1"),
        ("restart_after_passed_test = true", "restart_after_passed_test = 1", "true or false"),
        ("[promise]", "[promise", "is not TOML"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "settings.toml"
    text = settings.text(SKIPPING, {}, {})
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ParameterError, match=words):
        settings.read(path)


def test_sanitize_takes_them(hereish: Terminal, tmp_path: Path) -> None:
    path, source = tmp_path / "settings.toml", tmp_path / "in.csv"
    path.write_text(settings.text(SKIPPING, {}, {}))
    hereish("sample", "-o", source, "--users", 3)
    out = tmp_path / "out.csv"
    done = hereish("sanitize", source, "-o", out, "--settings", path, "--seed", 3, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["untested"] > 0
    sanitize_files([source], tmp_path / "same.csv", SKIPPING.mechanism(Day("UTC")), seed=3)
    assert out.read_bytes() == (tmp_path / "same.csv").read_bytes()
    rows = csv.DictReader(out.read_text().splitlines())
    spent: dict[str, float] = {}
    for row in rows:
        spent[row["user"]] = spent.get(row["user"], 0.0) + float(row["cost"])
    assert max(spent.values()) <= math.log(4) / 200


@pytest.mark.parametrize("option", ["--accuracy", "--reports", "--level", "--skip-speed"])
def test_settings_and_options_do_not_mix(hereish: Terminal, tmp_path: Path, option: str) -> None:
    path, source = tmp_path / "settings.toml", tmp_path / "in.csv"
    path.write_text(settings.text(PLAIN, {}, {}))
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
    assert settings.read(path).noise_accuracy_m > 0
    assert (tmp_path / "front.png").exists()
