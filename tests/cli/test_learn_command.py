"""hereish learn: a model of public traces, and files that are sanitised with it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from hereish.mobility import load_model
from tests.support.terminal import Terminal, output_of

HOME, WORK = (60.17, 24.94), (60.20, 24.96)


def write_days(path: Path, users: int = 3) -> Path:
    """Days of people who are at one place until noon and then at another."""
    rows = ["user,time,lat,lon"]
    for user in range(users):
        for day in (4, 5, 6):
            for half_hour in range(48):
                lat, lon = HOME if half_hour < 24 else WORK
                clock = f"{half_hour // 2:02}:{30 * (half_hour % 2):02}"
                rows.append(f"u{user},2026-05-{day:02}T{clock}:00Z,{lat},{lon + 1e-4 * user}")
    path.write_text("\n".join(rows))
    return path


@pytest.fixture
def group(hereish: Terminal, tmp_path: Path) -> Path:
    public, out = write_days(tmp_path / "public.csv"), tmp_path / "group.npz"
    told = output_of(hereish("learn", public, "-o", out, "--licence", "CC0"))
    assert "2 places of 3 people" in told
    assert "must be public, or sanitised before" in told
    assert load_model(out).digest in told
    assert "60.1" not in told, "no place is printed"
    return out


def test_what_is_learnt_is_in_the_file(group: Path) -> None:
    model = load_model(group)
    assert (model.name, model.licence) == ("public", "CC0")
    assert len(model) == 2
    assert model.moves.sum() == 3 * 3 + 3 * 2, "to work on three days, and back on two"


def test_it_is_told_for_programs_and_the_help_says_what_may_be_learnt_from(
    hereish: Terminal, tmp_path: Path
) -> None:
    public, out = write_days(tmp_path / "public.csv"), tmp_path / "group.npz"
    told = hereish("learn", public, "-o", out, "--json", "--name", "ours", "--places", "1")
    found = json.loads(output_of(told))
    assert (found["name"], found["places"]) == ("ours", 1)
    text = " ".join(output_of(hereish("learn", "--help")).split())
    assert "PUBLIC traces" in text
    assert "Never from the true traces of those who are to be protected" in text


def test_files_are_sanitised_with_it(hereish: Terminal, group: Path, tmp_path: Path) -> None:
    own = write_days(tmp_path / "own.csv", users=1)
    out = tmp_path / "out.csv"
    usual = ("sanitize", own, "-o", out, "--seed", "1", "--prediction", "mobility")
    output_of(hereish(*usual, "--mobility-model", group))
    with_model = out.read_text()
    output_of(hereish(*usual))
    assert len(list(csv.DictReader(io.StringIO(with_model)))) > 100
    assert with_model != out.read_text()


def test_usage_errors_say_what_to_do(hereish: Terminal, group: Path, tmp_path: Path) -> None:
    own, out = write_days(tmp_path / "own.csv", users=1), tmp_path / "out.csv"
    done = hereish("sanitize", own, "-o", out, "--mobility-model", group)
    assert done.code == 2
    assert "belongs to --prediction mobility, or roads: add that" in done.err
    done = hereish("sanitize", own, "-o", out, "--prediction", "mobility", "--mobility-model", own)
    assert done.code == 2
    assert "expected a mobility model of hereish" in done.err
    done = hereish("learn", own, "-o", out, "--near", "0m")
    assert done.code == 2
