"""`hereish sanitize --engine spark`: the options and the summary of one machine."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hereish.traces.key_file import write_key_file
from tests.support.spark import need_spark
from tests.traces.test_arrow import people

need_spark()


def hereish(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "hereish"), *map(str, words)]
    if not Path(command[0]).exists():
        command = [sys.executable, "-m", "hereish", *map(str, words)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603  # our own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    write_key_file(made / "key")
    table = people(20, 60)
    pq.write_table(table, made / "in.parquet")
    at = table["time"].cast(pa.timestamp("us")).to_pylist()
    with (made / "in.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["user", "time", "lat", "lon", "note"])
        for row, when in zip(table.to_pylist(), at, strict=True):
            out.writerow([row["user"], when.isoformat() + "Z", row["lat"], row["lon"], "x"])
        out.writerow(["somebody", "2023-11-15T00:00:00Z", "99.87654", "25", "x"])
    return made


def spark(folder: Path, source: str, to: str, *words: object) -> Any:
    return hereish(
        *("sanitize", folder / source, "-o", folder / to, "--engine", "spark"),
        *("--master", "local[2]", "--key-file", folder / "key", *words),
    )


def test_parquet_and_csv_have_the_summary_of_one_machine(folder: Path) -> None:
    done = spark(folder, "in.parquet", "out.parquet", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    # There, of several points at one time all but one are bad.
    alone = hereish(
        *("sanitize", folder / "in.parquet", "-o", folder / "alone.parquet"),
        *("--json", "--drop-bad"),
    )
    assert summary.keys() == json.loads(alone.stdout).keys()
    assert (summary["points"], summary["users"], summary["files"]) == (1200, 20, 1)
    assert summary["hard"] + summary["easy"] + summary["untested"] == 1200
    assert summary["refused"] == 0
    rows = pq.read_table(folder / "out.parquet")
    assert rows.column_names == ["user", "time", "lat", "lon", "kind", "cost"]
    assert len(rows) == 1200
    about = json.loads((folder / "out.parquet" / "_hereish.json").read_text())
    assert about["guarantee"] == summary["guarantee"]
    again = spark(folder, "in.csv", "out.csv", "--drop-bad", "--keep", "note", "--json")
    assert again.returncode == 0, again.stderr
    said = json.loads(again.stdout)
    assert sum(said["bad"].values()) == 1
    assert said["points"] == 1201
    texts = "".join(path.read_text() for path in sorted((folder / "out.csv").glob("*.csv")))
    released = {(r["user"], r["lat"], r["lon"]) for r in rows.to_pylist()}
    found = [r for r in csv.DictReader(texts.splitlines()) if r["user"] != "user"]
    assert {(r["user"], float(r["lat"]), float(r["lon"])) for r in found} == released
    assert {r["note"] for r in found} == {"x"}


def test_what_fails_says_why_without_digits(folder: Path) -> None:
    bad = spark(folder, "in.csv", "bad.csv")
    assert bad.returncode == 1
    assert "latitude is outside -90 to 90" in bad.stderr.splitlines()[-1]
    assert "99.87654" not in bad.stderr + bad.stdout
    assert not list((folder / "bad.csv").glob("part-*")) if (folder / "bad.csv").exists() else True
    taken = spark(folder, "in.parquet", "in.parquet")
    assert taken.returncode == 1
    assert "there already" in taken.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "spark"], "--key-file"),
        (["--engine", "spark", "--key-file", "key", "--seed", "1"], "--seed"),
        (["--engine", "spark", "--key-file", "key", "--order", "input"], "--order"),
        (["--engine", "spark", "--key-file", "key", "--split-by", "user"], "--split-by"),
        (["--engine", "spark", "--key-file", "key", "--user", "@file"], "@file"),
        (["--engine", "spark", "--key-file", "key", "--master", "sc://host"], "Connect"),
        (["--key-file", "key"], "--engine spark"),
        (["--master", "local"], "--engine spark"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], said: str) -> None:
    done = hereish("sanitize", "in.parquet", "-o", "out.parquet", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_columns_of_csv_files_are_found_by_their_names(folder: Path) -> None:
    """In another order too; one person would otherwise be two, with two budgets."""
    (folder / "a.csv").write_text(
        "user,device,time,lat,lon\n"
        + "".join(f"ada,phone,2026-05-05T1{i}:00:00Z,60.1,24.9\n" for i in range(5))
    )
    (folder / "b.csv").write_text(
        "device,user,lon,lat,time\n"
        + "".join(f"phone,ada,24.9,60.1,2026-05-05T1{i}:30:00Z\n" for i in range(5))
    )
    done = hereish(
        *("sanitize", folder / "a.csv", folder / "b.csv", "-o", folder / "ab.parquet", "--json"),
        *("--engine", "spark", "--master", "local[2]", "--key-file", folder / "key"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["users"] == 1
    rows = pq.read_table(folder / "ab.parquet")
    assert set(rows["user"].to_pylist()) == {"ada"}
    assert all(55.0 < lat < 65.0 for lat in rows["lat"].to_pylist())
    mixed = folder / "mixed"
    mixed.mkdir()
    for name in ("a.csv", "b.csv"):
        (folder / name).rename(mixed / name)
    refused = hereish(
        *("sanitize", mixed, "-o", folder / "mixed.parquet", "--format", "csv"),
        *("--engine", "spark", "--master", "local[2]", "--key-file", folder / "key"),
    )
    assert refused.returncode == 1
    assert "same header" in refused.stderr.splitlines()[-1]
