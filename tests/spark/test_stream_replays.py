"""A stream that is killed in the middle of micro-batches releases nothing twice."""

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

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hereish.traces.key_file import write_key_file
from tests.support.paths import ROOT
from tests.support.spark_stream_stage import (
    cut_by_time,
    expected_rows,
    need_streams,
    people_points,
    released_rows,
    secrets_in,
    write_pieces,
)

need_streams()

_PATIENCE_S = 100.0
# The micro-batch in which each start after the first is killed: also the same one twice.
_LATER_KILLS = (1, 1, 2, 2)


@dataclass(frozen=True)
class _Stream:
    """A query in processes of its own, and its files."""

    points: Path
    folder: Path
    expected: list[tuple[Any, ...]]  # what is to come out

    def copy(self, folder: Path) -> _Stream:
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

    def part_files(self) -> list[Path]:
        """All that were ever written, also by tasks whose micro-batch was not over."""
        return list((self.folder / "out").glob("*.parquet"))

    def committed_files(self) -> list[Path]:
        """Those that whoever reads the output with Spark is shown."""
        logs = (self.folder / "out" / "_spark_metadata").glob("[0-9]*")
        lines = [line for log in logs for line in log.read_text().splitlines() if line[0] == "{"]
        return [self.folder / "out" / Path(json.loads(line)["path"]).name for line in lines]


def _reports_with_two_places(rows: Sequence[tuple[Any, ...]]) -> int:
    places: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
    for row in rows:
        places.setdefault(row[:2], set()).add(row[2:])
    return sum(len(different) > 1 for different in places.values())


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> _Stream:
    """A stream that was killed in its first micro-batch."""
    folder = tmp_path_factory.mktemp("stream")
    points = people_points(users=10, each=30, seed=3)
    # One point at each time: then reports can be told from each other.
    points = points.group_by(["user", "time"], use_threads=False).aggregate(
        [(name, "first") for name in ("lat", "lon", "note")]
    )
    points = points.rename_columns([name.removesuffix("_first") for name in points.column_names])
    write_key_file(folder / "key")
    source = tmp_path_factory.mktemp("points")
    write_pieces(cut_by_time(points, 3), source)
    stream = _Stream(source, folder, expected_rows(points, "whole day", folder / "key"))
    stream.kill_within(0)
    return stream


def test_a_stream_that_is_killed_five_times_releases_nothing_twice(
    killed_once: _Stream, tmp_path: Path
) -> None:
    stream = killed_once.copy(tmp_path)
    for batch in _LATER_KILLS:
        stream.kill_within(batch)
    stream.finish()
    written = released_rows(stream.part_files())
    assert len(written) > len(stream.expected)  # some were released again, and in the same place
    assert _reports_with_two_places(written) == 0
    assert released_rows(stream.committed_files()) == stream.expected
    shutil.move(tmp_path / "key", tmp_path.parent / "moved key")  # and all else is searched
    points = pa.concat_tables(map(pq.read_table, stream.points.iterdir()))
    assert secrets_in(tmp_path, points, tmp_path.parent / "moved key") == []


def test_noise_of_another_key_would_be_noticed(killed_once: _Stream, tmp_path: Path) -> None:
    """The negative control: the micro-batch that is run again draws anew."""
    stream = killed_once.copy(tmp_path)
    stream.finish("--fresh")
    assert _reports_with_two_places(released_rows(stream.part_files())) > 0
    assert released_rows(stream.committed_files()) != stream.expected
