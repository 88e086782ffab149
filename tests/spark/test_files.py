"""`hereish sanitize --engine spark`: the options and the summary of one machine."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hereish.core.spaces import Sphere
from hereish.traces.key_file import write_key_file
from tests.support.spark import need_spark
from tests.support.spark_programs import environment, finish, start
from tests.support.terminal import Done, output_of
from tests.traces.test_arrow import people

need_spark()


ENVIRONMENT = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
# So many that some have no users, and not the 200 that Spark takes else: each starts a task.
FEWER = "--conf spark.sql.shuffle.partitions=24 pyspark-shell"


def hereish(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "hereish"), *map(str, words)]
    if not Path(command[0]).exists():
        command = [sys.executable, "-m", "hereish", *map(str, words)]
    return subprocess.run(  # noqa: S603  # our own
        command, capture_output=True, text=True, check=False, env=environment(**ENVIRONMENT)
    )


def on_spark(folder: Path, inputs: list[str], to: str, *words: str) -> list[str]:
    """The words of a command."""
    paths = [str(folder / name) for name in inputs]
    return [
        *("sanitize", *paths, "-o", str(folder / to), "--engine", "spark"),
        *("--master", "local[2]", "--key-file", str(folder / "key"), *words),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs, and what became of all commands but one, which is a process of its own."""
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
    columns_in_another_order(made)
    drive_along_a_road(made)
    wide = ("--level", "ln 10", "--radius", "1m", "--accuracy", "200m")
    roads = (*wide, "--prediction", "roads", "--roads", str(made / "roads.csv"))
    (made / "trips.csv").write_text(
        "user,trip,time,lat,lon\n"
        + "".join(f"ada,To the clinic,2026-05-05T1{i}:00:00Z,60.1,24.9\n" for i in range(5))
        + "ada,To the clinic,2026-05-05T16:00:00Z,400,24.9\n"
    )
    commands = {
        "parquet": on_spark(made, ["in.parquet"], "out.parquet", "--json"),
        "csv": on_spark(made, ["in.csv"], "out.csv", "--drop-bad", "--keep", "note", "--json"),
        "taken": on_spark(made, ["in.parquet"], "in.parquet"),
        "ordered": on_spark(made, ["mixed/a.csv", "mixed/b.csv"], "ab.parquet", "--json"),
        "few": on_spark(made, ["trips.csv"], "few.csv", "--drop-bad"),
        "trips": on_spark(made, ["trips.csv"], "trips.parquet", "--drop-bad=all", "--json"),
        "named": on_spark(made, ["trips.csv"], "named.parquet", "--trace", "trip"),
        "mixed": on_spark(made, ["mixed"], "mixed.parquet", "--format", "csv"),
        "roads": on_spark(made, ["drive.csv"], "driven.csv", "--json", *roads),
    }
    (made / "commands.json").write_text(json.dumps(commands))
    fewer = ENVIRONMENT | {"PYSPARK_SUBMIT_ARGS": FEWER}
    finish(start("spark_commands", made / "log", str(made), **fewer), made / "log")
    return made


def columns_in_another_order(folder: Path) -> None:
    """One person would be two, with two budgets, if columns were not found by their names."""
    mixed = folder / "mixed"
    mixed.mkdir()
    (mixed / "a.csv").write_text(
        "user,device,time,lat,lon\n"
        + "".join(f"ada,phone,2026-05-05T1{i}:00:00Z,60.1,24.9\n" for i in range(5))
    )
    (mixed / "b.csv").write_text(
        "device,user,lon,lat,time\n"
        + "".join(f"phone,ada,24.9,60.1,2026-05-05T1{i}:30:00Z\n" for i in range(5))
    )


def drive_along_a_road(folder: Path) -> None:
    """North for half an hour, with a fix every ten seconds."""
    rows = [
        f"ada,2026-05-05T12:{i // 6:02}:{10 * (i % 6):02}Z,{60 + 0.003 * i:.6f},24.9"
        for i in range(180)
    ]
    (folder / "drive.csv").write_text("\n".join(["user,time,lat,lon", *rows]))
    (folder / "roads.csv").write_text("way,lat,lon\n1,59.9,24.9\n1,60.6,24.9\n")


def result(folder: Path, name: str) -> Done:
    return Done(*json.loads((folder / f"{name}.json").read_text()))


def test_parquet_and_csv_have_the_summary_of_one_machine(folder: Path) -> None:
    summary = json.loads(output_of(result(folder, "parquet")))
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
    said = json.loads(output_of(result(folder, "csv")))
    assert sum(said["bad"].values()) == 1
    assert said["points"] == 1201
    texts = "".join(path.read_text() for path in sorted((folder / "out.csv").glob("*.csv")))
    released = {(r["user"], r["lat"], r["lon"]) for r in rows.to_pylist()}
    found = [r for r in csv.DictReader(texts.splitlines()) if r["user"] != "user"]
    assert {(r["user"], float(r["lat"]), float(r["lon"])) for r in found} == released
    assert {r["note"] for r in found} == {"x"}


def test_the_summary_says_how_far_off_reports_are(folder: Path) -> None:
    """Against a count of rows by their times, which differ in this file."""
    summary = json.loads(output_of(result(folder, "roads")))
    with (folder / "drive.csv").open() as file:
        true = {r["time"]: (float(r["lat"]), float(r["lon"])) for r in csv.DictReader(file)}
    texts = "".join(path.read_text() for path in sorted((folder / "driven.csv").glob("*.csv")))
    found = [r for r in csv.DictReader(texts.splitlines()) if r["user"] != "user"]
    public = np.array([(float(r["lat"]), float(r["lon"])) for r in found])
    times = [r["time"].replace(".000", "") for r in found]
    away = Sphere().distance(np.array([true[time] for time in times]), public)
    assert summary["displacement_mean_m"] == pytest.approx(away.mean(), rel=1e-5)
    within = np.sort(away)[int(np.ceil(0.9 * len(away))) - 1]
    assert within <= summary["displacement_p90_m"] <= 1.012 * within


def test_java_prints_nothing_among_the_summary(folder: Path) -> None:
    assert (folder / "java").read_bytes() == b""
    assert b"WARN" in (folder / "log").read_bytes()  # it does speak, on standard error


def test_what_fails_says_why_without_digits(folder: Path) -> None:
    """In a process of its own, so that all that it and Spark say is looked at."""
    bad = hereish(*on_spark(folder, ["in.csv"], "bad.csv"))
    assert bad.returncode == 1
    assert "latitude is outside -90 to 90" in bad.stderr.splitlines()[-1]
    assert "99.87654" not in bad.stderr + bad.stdout
    assert not list((folder / "bad.csv").glob("part-*")) if (folder / "bad.csv").exists() else True
    taken = result(folder, "taken")
    assert taken.code == 1
    assert "there already" in taken.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "spark"], "--key-file"),
        (["--engine", "spark", "--key-file", "key", "--seed", "1"], "--seed"),
        (["--engine", "spark", "--key-file", "key", "--order", "input"], "--order"),
        (["--engine", "spark", "--key-file", "key", "--split-by", "user"], "--split-by"),
        (["--engine", "spark", "--key-file", "key", "--user", "@file"], "@file"),
        (["--engine", "spark", "--key-file", "key", "--master", "sc://host"], "Connect"),
        (["--engine", "spark", "--key-file", "key", "--time-format", "s"], "--time-format"),
        (["--engine", "spark", "--key-file", "key", "--date", "day"], "--date"),
        (["--engine", "spark", "--key-file", "key", "--point", "geom"], "--point"),
        (
            ["--engine", "spark", "--key-file", "key", "--coordinate-unit", "e7"],
            "--coordinate-unit",
        ),
        (["--key-file", "key"], "--engine spark"),
        (["--master", "local"], "--engine spark"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], said: str) -> None:
    done = hereish("sanitize", "in.parquet", "-o", "out.parquet", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_much_is_not_lost_and_names_of_traces_are_not_published_unasked(folder: Path) -> None:
    few = result(folder, "few")
    assert few.code == 1
    assert "1 of 6 points (its latitude is outside -90 to 90)" in few.err
    assert "--drop-bad=all" in few.err
    assert not (folder / "few.csv").exists()
    assert json.loads(output_of(result(folder, "trips")))["points"] == 6
    assert pq.read_table(folder / "trips.parquet").column_names == [
        *("user", "time", "lat", "lon", "kind", "cost")
    ]
    named = result(folder, "named")
    assert (named.code, "--keep-trace-names" in named.err) == (2, True)


def test_columns_of_csv_files_are_found_by_their_names(folder: Path) -> None:
    assert json.loads(output_of(result(folder, "ordered")))["users"] == 1
    rows = pq.read_table(folder / "ab.parquet")
    assert set(rows["user"].to_pylist()) == {"ada"}
    assert all(55.0 < lat < 65.0 for lat in rows["lat"].to_pylist())
    refused = result(folder, "mixed")
    assert refused.code == 1
    assert "same header" in refused.err.splitlines()[-1]


def test_roads_are_followed_on_spark_too(folder: Path) -> None:
    """A parrot is left behind within ten seconds, so guesses that pass have gone on."""
    summary = json.loads(output_of(result(folder, "roads")))
    assert summary["points"] == 180
    assert summary["easy"] > 0.3 * (summary["easy"] + summary["hard"])
