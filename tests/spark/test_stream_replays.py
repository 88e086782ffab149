"""A stream that is killed in the middle of micro-batches releases nothing twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.spark_stream_kills import KillableStream, reports_with_two_places
from tests.support.spark_stream_stage import need_streams, secrets_in

need_streams()

# The micro-batch in which each start after the first is killed: also the same one twice.
_LATER_KILLS = (1, 1, 2, 2)


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> KillableStream:
    """A stream that was killed in its first micro-batch."""
    points, folder = tmp_path_factory.mktemp("points"), tmp_path_factory.mktemp("stream")
    stream = KillableStream.begin(points, folder, 3, each=30)
    stream.kill_within(0)
    return stream


def test_a_stream_that_is_killed_five_times_releases_nothing_twice(
    killed_once: KillableStream, tmp_path: Path
) -> None:
    stream = killed_once.copy(tmp_path)
    for batch in _LATER_KILLS:
        stream.kill_within(batch)
    stream.finish()
    written = stream.written_rows()
    assert len(written) > len(stream.expected)  # some were released again, and in the same place
    assert reports_with_two_places(written) == 0
    assert stream.released_rows() == stream.expected
    shutil.move(tmp_path / "key", tmp_path.parent / "moved key")  # and all else is searched
    points = pa.concat_tables(map(pq.read_table, stream.points.iterdir()))
    assert secrets_in(tmp_path, points, tmp_path.parent / "moved key") == []


def test_noise_of_another_key_would_be_noticed(killed_once: KillableStream, tmp_path: Path) -> None:
    """The negative control: the micro-batch that is run again draws anew."""
    stream = killed_once.copy(tmp_path)
    stream.finish("--fresh")
    assert reports_with_two_places(stream.written_rows()) > 0
    assert stream.released_rows() != stream.expected
