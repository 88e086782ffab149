"""What files and the command cost: against pyarrow copying the same file, and against imports."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute, csv

from benchmarks.processes import all_cores
from benchmarks.results import Result, shortest_times
from hereish import synthetic
from tests.support.paths import GEOLIFE

HEREISH = str(Path(sys.executable).with_name("hereish"))
GIB = 1 << 30
COPY = """
import sys
import pyarrow.parquet as pq
source = pq.ParquetFile(sys.argv[1])
with pq.ParquetWriter(sys.argv[2], source.schema_arrow, compression="zstd") as out:
    for batch in source.iter_batches(1 << 20):
        out.write_batch(batch)
"""


READ_CSV = """
import sys
from pyarrow import csv
for batch in csv.open_csv(sys.argv[1]):
    pass
"""
PARSE_XML = """
import pathlib, sys
from xml.parsers import expat
for path in pathlib.Path(sys.argv[1]).iterdir():
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = lambda name, attributes: None
    parser.EndElementHandler = lambda name: None
    parser.CharacterDataHandler = lambda text: None
    parser.Parse(path.read_bytes(), True)
"""
CSV_ROWS, GPX_FILES = 4_000_000, 5_000
COPIES = 4  # of the Parquet file, in one that jobs share
_SETTINGS = ["--accuracy", "3km", "--window", "trace", "--drop-bad", "--quiet"]
_COMMAND = "hereish sanitize --accuracy 3km --window trace --drop-bad"


class Used(NamedTuple):
    """What a program took."""

    processor_s: float
    peak_bytes: int
    clock_s: float


def files() -> list[Result]:
    """`hereish sanitize` on a large Parquet file against pyarrow copying it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, what = _parquet(folder)
        rows = pq.ParquetFile(whole).metadata.num_rows
        out = folder / "out.parquet"
        copied, sanitized = _in_turns(
            3, [sys.executable, "-c", COPY, str(whole), str(out)], _sanitize(whole, out)
        )
        part = _run(_sanitize(_first_quarter(whole, folder), out))
    speed, growth = _ratio(copied, sanitized), sanitized[0].peak_bytes / part.peak_bytes
    command = f"{_COMMAND}, {rows:,} {what} rows"
    return [
        Result(
            f"speed, {command} / pyarrow copying the file",
            f"{speed:.2f}",
            "at least 0.6",
            speed >= 0.6,
        ),
        Result(
            f"peak memory, {command} / 1 GiB",
            f"{sanitized[0].peak_bytes / GIB:.2f}",
            "below 1.5",
            sanitized[0].peak_bytes < 1.5 * GIB,
        ),
        Result(
            f"peak memory, {command} / the first quarter of them",
            f"{growth:.2f}",
            "at most 1.2",
            growth <= 1.2,
        ),
    ]


def csv_files() -> list[Result]:
    """The same for CSV, against pyarrow reading it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, what = _csv(folder)
        read, sanitized = _in_turns(
            3,
            [sys.executable, "-c", READ_CSV, str(path)],
            _sanitize(path, folder / "out.csv"),
        )
    speed, peak = _ratio(read, sanitized), sanitized[0].peak_bytes
    command = f"{_COMMAND}, {what} as CSV"
    return [
        Result(
            f"speed, {command} / pyarrow reading the file",
            f"{speed:.2f}",
            "at least 0.35",
            speed >= 0.35,
        ),
        Result(
            f"peak memory, {command} / 1 GiB", f"{peak / GIB:.2f}", "below 1.5", peak < 1.5 * GIB
        ),
    ]


def file_jobs() -> list[Result]:
    """One large file with two jobs against one, by the clock."""
    results = []
    with tempfile.TemporaryDirectory() as name, all_cores():
        folder = Path(name)
        shared, what = _copies(folder)
        for form in ("Parquet", "CSV"):
            path = shared if form == "Parquet" else _as_csv(shared)
            out = folder / f"out{path.suffix}"
            one, two = _in_turns(3, _sanitize(path, out), _sanitize(path, out, jobs=2))
            faster = min(used.clock_s for used in one) / min(used.clock_s for used in two)
            most = two[0].peak_bytes / GIB
            results.append(
                Result(
                    f"time of --jobs 1 / --jobs 2, {_COMMAND}, one {form} file of {what}",
                    f"{faster:.2f} (peak memory {most:.2f} GiB)",
                    "at least 1.7",
                    faster >= 1.7,
                )
            )
    return results


def small_files() -> list[Result]:
    """Many small GPX files against an XML parser that does nothing with them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "gpx"
        _write_gpx(folder)
        ours = [HEREISH, "sanitize", str(folder), "--accuracy", "3km", "--quiet", "--jobs", "1"]
        parsed, sanitized = _in_turns(
            1,
            [sys.executable, "-c", PARSE_XML, str(folder)],
            [*ours, "-o", str(Path(name) / "out")],
        )
    return [
        Result(
            f"hereish sanitize, {GPX_FILES:,} GPX files of 40 points / parsing their XML, "
            "processor seconds",
            f"{1 / _ratio(parsed, sanitized):.1f}",
            "for comparison",
            True,
        )
    ]


def _sanitize(path: Path, out: Path, jobs: int = 1) -> list[str]:
    return [HEREISH, "sanitize", str(path), "-o", str(out), *_SETTINGS, "--jobs", str(jobs)]


def _in_turns(rounds: int, *commands: list[str]) -> list[list[Used]]:
    """What each command took, round by round."""
    used: list[list[Used]] = [[] for _ in commands]
    for _ in range(rounds):
        for command, of_command in zip(commands, used, strict=True):
            of_command.append(_run(command))
    return used


def _ratio(some: list[Used], others: list[Used]) -> float:
    """The median of their processor seconds, of some to others."""
    first, second = (statistics.median(one.processor_s for one in used) for used in (some, others))
    return first / second


# A program's peak counts what its parent held when it was started, so a small parent starts it.
LAUNCH = """
import os, sys
silent = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[silent])
_, status, used = os.wait4(pid, 0)
print(used.ru_maxrss * (1 if sys.platform == "darwin" else 1024), used.ru_utime + used.ru_stime)
sys.exit(status != 0)
"""


def _run(command: list[str]) -> Used:
    """Run a program as it is run where it is installed: modules are compiled once."""
    launch = [sys.executable, "-S", "-E", "-c", LAUNCH, *command]
    compiled = {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "hereish-benchmarks")}
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | compiled
    start = time.perf_counter()
    done = subprocess.run(launch, env=settings, check=True, capture_output=True)  # noqa: S603  # our own
    peak, processor_s = done.stdout.split()
    return Used(float(processor_s), int(peak), time.perf_counter() - start)


def _parquet(folder: Path) -> tuple[Path, str]:
    return (GEOLIFE, "GeoLife") if GEOLIFE.exists() else (_synthetic(folder), "made-up")


def _copies(folder: Path) -> tuple[Path, str]:
    """The Parquet file several times over, each time of other people."""
    source, what = _parquet(folder)
    path, rows = folder / "copies.parquet", 0
    file = pq.ParquetFile(source)
    number = file.schema_arrow.get_field_index("user")
    schema = file.schema_arrow.set(number, pa.field("user", pa.int64()))
    with pq.ParquetWriter(path, schema, compression="zstd") as out:
        for copy in range(COPIES):
            for batch in file.iter_batches(1 << 20):
                user = compute.add(batch.column(number).cast(pa.int64()), copy * 1_000_000)
                out.write_batch(pa.record_batch(batch.set_column(number, "user", user), schema))
                rows += len(batch)
    return path, f"{rows:,} rows ({COPIES} times {what})"


def _csv(folder: Path) -> tuple[Path, str]:
    """The first rows as CSV, texts in quotes."""
    source, what = _parquet(folder)
    table = _with_text_times(pq.read_table(source).slice(0, CSV_ROWS))
    path = folder / "in.csv"
    csv.write_csv(table, path)
    return path, f"{table.num_rows:,} rows of {what}"


def _as_csv(path: Path) -> Path:
    """All rows of a Parquet file as CSV."""
    file, out = pq.ParquetFile(path), path.with_suffix(".csv")
    batches = (_with_text_times(pa.table(batch)) for batch in file.iter_batches(1 << 20))
    first = next(batches)
    with csv.CSVWriter(out, first.schema) as writer:
        writer.write(first)
        for table in batches:
            writer.write(table)
    path.unlink()
    return out


def _with_text_times(table: Any) -> Any:
    at = compute.strftime(
        table["at"].cast(pa.timestamp("s", "UTC"), safe=False), "%Y-%m-%dT%H:%M:%SZ"
    )
    return table.set_column(table.schema.get_field_index("at"), "at", at)


def _write_gpx(folder: Path) -> None:
    folder.mkdir()
    day = synthetic.day(users=GPX_FILES, points_each=40, seed=1)
    times = np.datetime_as_string(np.floor(day.at_s).astype("datetime64[s]")).tolist()
    for number in range(GPX_FILES):
        own = range(40 * number, 40 * number + 40)
        points = "".join(
            f'<trkpt lat="{day.points[i, 0]:.6f}" lon="{day.points[i, 1]:.6f}"><ele>12.0</ele>'
            f"<time>{times[i]}Z</time></trkpt>\n"
            for i in own
        )
        (folder / f"{number:05}.gpx").write_text(
            '<gpx version="1.1" creator="made up" xmlns="http://www.topografix.com/GPX/1/1">\n'
            f"<trk><name>ride</name><trkseg>\n{points}</trkseg></trk>\n</gpx>\n"
        )


def _synthetic(folder: Path) -> Path:
    """As many rows as GeoLife has, for those who do not have it."""
    people, each = 11_400, 1200
    day = synthetic.day(users=people, points_each=each, seed=1)
    columns = {
        "user": pa.array(np.repeat(np.arange(people, dtype=np.int16), each)),
        "trace": pa.array(np.repeat(np.arange(people, dtype=np.int32), each)),
        "at": pa.array(np.floor(day.at_s * 1e3).astype(np.int64), pa.timestamp("ms", "UTC")),
        "lat": pa.array(day.points[:, 0]),
        "lon": pa.array(day.points[:, 1]),
    }
    path = folder / "made-up.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=1 << 20)
    return path


def _first_quarter(whole: Path, folder: Path) -> Path:
    source = pq.ParquetFile(whole)
    path = folder / "quarter.parquet"
    groups = list(range(max(1, source.num_row_groups // 4)))
    pq.write_table(source.read_row_groups(groups), path, compression="zstd")
    return path


def startup() -> list[Result]:
    """Short commands against the imports that they need."""
    with tempfile.TemporaryDirectory() as name:
        gpx, out = Path(name) / "in.gpx", Path(name) / "out.gpx"
        _run([HEREISH, "sample", "-o", str(gpx), "--points", "100"])

        def program(*command: str) -> Callable[[], object]:
            return partial(_run, [*command])

        imports, showing_help, small = shortest_times(
            9,
            program(sys.executable, "-c", "import numpy, scipy.special"),
            program(HEREISH, "--help"),
            program(HEREISH, "sanitize", str(gpx), "-o", str(out), "--accuracy", "3km", "--quiet"),
        )
    return [
        Result(
            f"{what} / python -c 'import numpy, scipy.special'",
            f"{ratio:.2f}",
            f"at most {most}",
            ratio <= most,
        )
        for what, ratio, most in (
            ("hereish --help", showing_help / imports, 1.5),
            ("hereish sanitize, 100 points of GPX", small / imports, 3),
        )
    ]
