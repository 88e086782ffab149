"""`hereish evaluate` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.terminal import Terminal

COLUMNS = (
    *("dataset", "p", "mechanism", "manager", "skip", "sampling", "traces", "reports"),
    *("prediction_rate", "test_share", "skipped_share", "error_mean_m", "error_p90_m", "rate"),
    "rate_pooled",
)


@pytest.fixture
def city(tmp_path: Path, hereish: Terminal) -> Path:
    path = tmp_path / "city.csv"
    assert hereish("sample", "-o", path, "--users", 12, "--points", 500).code == 0
    return path


def test_a_study_writes_a_table_and_figures_and_goes_on_where_it_was(
    hereish: Terminal, city: Path, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    asked = ("evaluate", city, "-o", out, "--samples", 1, "--sampling", "gaps", "--jobs", 2)
    done = hereish(*asked)
    assert done.code == 0, done.err
    assert "predictive, fixed utility, skip" in done.out
    assert "(not private)" in done.out
    table = pq.read_table(out / "results.parquet").to_pylist()
    assert set(COLUMNS) <= set(table[0])
    for name in ("prediction_rate", "rate", "error_p90_m"):
        assert f"{name}_lo" in table[0]
        assert f"{name}_hi" in table[0]
    assert {row["p"] for row in table} == {i / 10 for i in range(11)}
    assert {row["dataset"] for row in table} == {"city"}
    assert len(list(out.glob("*.png"))) >= 4
    cells = {path.name: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    assert len(cells) == 11
    again = json.loads(hereish(*asked, "--json").out)
    assert again["rows"] == table
    assert {p.name: p.stat().st_mtime_ns for p in (out / "cells").iterdir()} == cells


def test_sampled_traces_skip_the_first_stages(
    hereish: Terminal, city: Path, tmp_path: Path
) -> None:
    names = []
    for p in ("0.2", "1.0"):
        lines = city.read_text().splitlines()[1:120]
        path = tmp_path / f"mine-p{p}.csv"
        path.write_text("\n".join(["trace_id,t,lat,lon", *lines]))
        names += ["--sampled", path]
    out = tmp_path / "study"
    done = hereish("evaluate", *names, "-o", out, "--as-published", "--samples", 2, "--quiet")
    assert done.code == 0, done.err
    assert done.out == ""
    table = pq.read_table(out / "results.parquet").to_pylist()
    assert {(row["dataset"], row["p"], row["sampling"]) for row in table} == {
        ("mine", 0.2, "given"),
        ("mine", 1.0, "given"),
    }
    assert all(row["as_published"] for row in table)
    assert {row["samples"] for row in table} == {2}


def test_without_data_it_is_the_made_up_city(hereish: Terminal, tmp_path: Path) -> None:
    out = tmp_path / "study"
    done = hereish("evaluate", "-o", out, "--quick", "--sampling", "authors", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert {row["dataset"] for row in told["rows"]} == {"synthetic"}
    assert max(row["traces"] for row in told["rows"]) <= 500
    assert "sampling and sanitising" in told["seconds"]
    assert (out / "true-trace.png").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--user", "@file"), "--user must name a column"),
        (("--accuracy", "3"), "has no unit"),
        (("--sampled", "nowhere.csv"), "no file or folder nowhere.csv"),
        (("nowhere.parquet",), "no file or folder nowhere.parquet"),
    ],
)
def test_usage_errors_are_explained(
    hereish: Terminal, tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    done = hereish("evaluate", *args, "-o", tmp_path / "study", "--quick")
    assert done.code == 2
    assert words in done.err
