"""A stream in processes of its own, which are killed in the middle of micro-batches."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hereish.traces.key_file import write_key_file
from tests.support.paths import ROOT
from tests.support.spark_stream_stage import (
    cut_by_time,
    expected_rows,
    people_points,
    released_rows,
    write_pieces,
)

_PATIENCE_S = 100.0
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class KillableStream:
    """A query in processes of its own, and its files."""

    points: Path
    folder: Path
    expected: Rows  # what is to come out

    @classmethod
    def begin(cls, points: Path, folder: Path, pieces: int, *, each: int) -> KillableStream:
        """Points of a few people in so many micro-batches, and a key; nothing is started yet."""
        table = people_points(users=10, each=each, seed=3)
        # One point at each time: then reports can be told from each other.
        table = table.group_by(["user", "time"], use_threads=False).aggregate(
            [(name, "first") for name in ("lat", "lon", "note")]
        )
        table = table.rename_columns([name.removesuffix("_first") for name in table.column_names])
        write_pieces(cut_by_time(table, pieces), points)
        folder.mkdir(exist_ok=True)
        write_key_file(folder / "key")
        return cls(points, folder, expected_rows(table, "whole day", folder / "key"))

    def copy(self, folder: Path) -> KillableStream:
        """The same state of affairs once more. Spark notes paths of the source, which stays."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return replace(self, folder=folder)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-m", "tests.support.spark_stream_query"]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603  # a program of ours
                [*program, str(self.points), str(self.folder), *options],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Spark's Java is killed with it
            )

    def kill_within(self, batch: int) -> None:
        """Start it, and kill it when the first of the two tasks of this micro-batch is over."""
        hangs, before = self.folder / "hangs", set(self.part_files())
        hangs.unlink(missing_ok=True)
        query = self.start("--hang", str(batch))
        try:
            until = time.monotonic() + _PATIENCE_S
            while not (hangs.exists() and hangs.read_text()):
                assert query.poll() is None, self.log()
                assert time.monotonic() < until, self.log()
                time.sleep(0.1)
        finally:
            os.killpg(query.pid, signal.SIGKILL)
            query.wait()
        with contextlib.suppress(ProcessLookupError):  # Spark's worker may have ended with it
            os.kill(int(hangs.read_text()), signal.SIGKILL)
        checkpoint = self.folder / "checkpoint"
        assert (checkpoint / "offsets" / str(batch)).exists()
        assert not (checkpoint / "commits" / str(batch)).exists()
        assert set(self.part_files()) - before

    def finish(self, *options: str) -> None:
        query = self.start(*options)
        try:
            assert query.wait(_PATIENCE_S) == 0, self.log()
        except subprocess.TimeoutExpired:
            os.killpg(query.pid, signal.SIGKILL)
            raise

    def log(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def written_rows(self) -> Rows:
        """All that were ever written, also by tasks whose micro-batch was not over."""
        return released_rows(self.part_files())

    def released_rows(self) -> Rows:
        """Those that whoever reads the output with Spark is shown."""
        logs = (self.folder / "out" / "_spark_metadata").glob("[0-9]*")
        lines = [line for log in logs for line in log.read_text().splitlines() if line[0] == "{"]
        names = {Path(json.loads(line)["path"]).name for line in lines}
        return released_rows(self.folder / "out" / name for name in names)

    def part_files(self) -> list[Path]:
        return list((self.folder / "out").glob("*.parquet"))


def reports_with_two_places(rows: Sequence[tuple[Any, ...]]) -> int:
    places: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
    for row in rows:
        places.setdefault(row[:2], set()).add(row[2:])
    return sum(len(different) > 1 for different in places.values())
