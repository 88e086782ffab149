"""What files and the command cost: against pyarrow copying the same file, and against imports."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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


def files() -> list[Result]:
    """`hereish sanitize` on a large Parquet file against pyarrow copying it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, what = (GEOLIFE, "GeoLife") if GEOLIFE.exists() else (_synthetic(folder), "made-up")
        rows = pq.ParquetFile(whole).metadata.num_rows
        quarter = _first_quarter(whole, folder)
        out = str(folder / "out.parquet")
        peaks: dict[Path, int] = {}

        def ours(path: Path) -> None:
            peaks[path] = _run([HEREISH, "sanitize", str(path), "-o", out, *_SETTINGS])

        copied, sanitized = shortest_times(
            3, partial(_run, [sys.executable, "-c", COPY, str(whole), out]), partial(ours, whole)
        )
        ours(quarter)
    speed, growth = copied / sanitized, peaks[whole] / peaks[quarter]
    command = f"hereish sanitize --accuracy 3km --window trace --drop-bad, {rows:,} {what} rows"
    return [
        Result(
            f"speed, {command} / pyarrow copying the file",
            f"{speed:.2f}",
            "at least 0.25",
            speed >= 0.25,
        ),
        Result(
            f"peak memory, {command} / 1 GiB",
            f"{peaks[whole] / GIB:.2f}",
            "below 1.5",
            peaks[whole] < 1.5 * GIB,
        ),
        Result(
            f"peak memory, {command} / the first quarter of them",
            f"{growth:.2f}",
            "at most 1.2",
            growth <= 1.2,
        ),
    ]


_SETTINGS = ["--accuracy", "3km", "--window", "trace", "--drop-bad", "--quiet"]


# A program's peak counts what its parent held when it was started, so a small parent starts it.
LAUNCH = """
import os, sys
silent = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[silent])
_, status, used = os.wait4(pid, 0)
print(used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
sys.exit(status != 0)
"""


def _run(command: list[str]) -> int:
    """Run a program; returns its peak memory in bytes."""
    launch = [sys.executable, "-S", "-E", "-c", LAUNCH, *command]
    done = subprocess.run(launch, check=True, capture_output=True)  # noqa: S603  # our own
    return int(done.stdout)


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
