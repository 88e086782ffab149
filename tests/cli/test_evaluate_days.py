"""`hereish evaluate --days` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hereish.core.settings import PRESETS
from tests.support.terminal import Terminal

COLUMNS = (
    *("dataset", "mechanism", "preset", "every_s", "days", "users", "queries"),
    *("belief_mean_m", "belief_median_m", "belief_p90_m", "belief_p99_m"),
    *("answered_share", "spent_share"),
)


@pytest.fixture
def city(tmp_path: Path, hereish: Terminal) -> Path:
    path = tmp_path / "city.csv"
    assert hereish("sample", "-o", path, "--users", 5, "--points", 300).code == 0
    return path


def test_days_of_data_become_a_table_and_figures(
    hereish: Terminal, city: Path, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    asked = ("evaluate", city, "-o", out, "--days", "--samples", 2, "--jobs", 2)
    done = hereish(*asked, "--every", "30min", "--every", "1h", "--every", "60min")
    assert done.code == 0, done.err
    assert "days of city are those of Etc/GMT-2, by longitude" in done.err
    assert "fixed utility, skip" in done.out
    assert "a query every 1 h" in done.out
    table = pq.read_table(out / "days.parquet").to_pylist()
    assert set(COLUMNS) <= set(table[0])
    assert [*dict.fromkeys(row["every_s"] for row in table)] == [1800.0, 3600.0]
    assert {row["preset"] for row in table} == {None, *PRESETS}
    assert {row["dataset"] for row in table} == {"city"}
    assert {row["time_zone"] for row in table} == {"Etc/GMT-2"}
    hours = pq.read_table(out / "days-by-hour.parquet").to_pylist()
    assert {row["mechanism"] for row in hours} == {row["mechanism"] for row in table}
    assert sorted(path.name for path in out.glob("*.png")) == [
        "city-days-30min.png",
        "city-days-60min.png",
    ]
    zoned = hereish(*asked, "--time-zone", "Europe/Helsinki", "--json", "--seed", 2)
    told = json.loads(zoned.out)
    assert {row["time_zone"] for row in told["rows"]} == {"Europe/Helsinki"}
    assert {row["every_s"] for row in told["rows"]} == {1800.0}
    assert {row["samples"] for row in told["rows"]} == {2}
    assert told["rows"] == pq.read_table(out / "days.parquet").to_pylist()
    assert told["hours"] == pq.read_table(out / "days-by-hour.parquet").to_pylist()
    assert "by longitude" not in zoned.err
    assert "sanitising" in told["seconds"]


def test_without_data_it_is_two_weeks_of_the_made_up_city(
    hereish: Terminal, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    done = hereish("evaluate", "-o", out, "--days", "--quick", "--quiet", "--every", "1h")
    assert done.code == 0, done.err
    assert (done.out, done.err) == ("", "")
    table = pq.read_table(out / "days.parquet").to_pylist()
    assert {(row["dataset"], row["time_zone"]) for row in table} == {
        ("synthetic", "Europe/Helsinki")
    }
    assert {(row["users"], row["days"], row["samples"]) for row in table} == {(50, 700, 1)}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--every", "30min"), "--every is the time between queries of whole days: give --days"),
        (("--days", "--every", "30"), "has no unit"),
        (("--days", "--every", "10s"), "from 1 minute to 24 hours"),
        (("--days", "--reports", "30"), "leave out --reports"),
        (("--days", "--as-published"), "leave out --as-published"),
        (("--days", "--sampling", "gaps"), "leave out --sampling"),
        (("--days", "--sampled", "x.csv"), "leave out --sampled"),
        (("--days", "--time-zone", "Nowhere/Land"), "time zone must be an IANA name"),
        (("--days", "nowhere.parquet"), "no file or folder nowhere.parquet"),
    ],
)
def test_usage_errors_are_explained(
    hereish: Terminal, tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    done = hereish("evaluate", *args, "-o", tmp_path / "study", "--quick")
    assert done.code == 2
    assert words in done.err
    assert not (tmp_path / "study" / "days.parquet").exists()
