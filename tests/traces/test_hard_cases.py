"""What somebody who wants to break it would try."""

from __future__ import annotations

import math
import resource
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from test_files import BUDGET, NOON, PRIVACY, M, released, rows, spent, table

import hereish
from hereish.errors import ParameterError, PointError
from hereish.traces import gpx, markup
from hereish.traces.files import load, promise_of, sanitize_files
from hereish.traces.piece import Columns
from hereish.traces.rows import EachTrace


def test_spellings_of_one_user_share_one_budget(tmp_path: Path) -> None:
    spellings = ("josé", " josé", "jose\u0301", "josé ")
    every = [
        row
        for i, name in enumerate(spellings)
        for row in rows(name, 15, NOON + timedelta(minutes=20 * i))
    ]
    out = tmp_path / "out.csv"
    tally = sanitize_files([table(tmp_path / "in.csv", every)], out, M)
    assert tally.users == 1
    assert sum(spent(released(out)).values()) <= BUDGET
    assert {row["user"] for row in released(out)} <= set(spellings)  # as they were given


def test_a_track_longer_than_a_piece_has_one_budget(tmp_path: Path) -> None:
    """Even if the piece that it ends in also has a track that tells its id."""
    moments = [NOON + timedelta(seconds=i) for i in range(markup.ROWS + 3000)]
    points = "".join(
        f'<trkpt lat="{60 + i % 500 / 20}" lon="25"><time>{at.isoformat()}</time></trkpt>\n'
        for i, at in enumerate(moments)
    )
    one = points[: points.index("</trkpt>") + 8]
    told = "<extensions><h:trace>x</h:trace></extensions>"
    path = tmp_path / "in.gpx"
    path.write_text(
        f'<gpx xmlns:h="{gpx.NAMESPACE}"><trk><trkseg>{points}</trkseg></trk>'
        f"<trk>{told}<trkseg>{one}</trkseg></trk></gpx>"
    )
    m = hereish.fixed_utility(PRIVACY, 3000, window=EachTrace())
    out = tmp_path / "out.csv"
    assert sanitize_files([path], out, m).traces == 2
    costs = [float(row["cost"]) for row in released(out) if row["trace"] == "1"]
    assert 0.8 * BUDGET < math.fsum(costs) <= BUDGET


def test_many_small_files_need_few_open_ones(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(300):
        table(folder / f"{i:03}.csv", rows("ann", 1, NOON + timedelta(minutes=i)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 100), hard))
    try:
        sanitize_files([folder], tmp_path / "out", M)
        sanitize_files([folder], tmp_path / "out.parquet", M)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(list((tmp_path / "out").glob("*.csv"))) == 300
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 1


def test_a_failed_run_leaves_the_old_file_with_its_own_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = table(tmp_path / "in.csv", rows("ann", 3)), tmp_path / "out.csv"
    sanitize_files([source], out, M, seed=1)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            sanitize_files([source], out, M)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    sanitize_files([source], out, M)
    promise = promise_of(str(out))
    assert promise is not None
    assert promise.private
    assert {path.name for path in tmp_path.iterdir()} == set(before)


def test_hidden_folders_and_links_are_not_taken_for_data(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / ".old.part").mkdir(parents=True)
    table(folder / "a.csv", rows("ann", 3))
    table(folder / ".old.part" / "b.csv", rows("bob", 3))
    assert sanitize_files([folder], tmp_path / "out.csv", M).points == 3
    (folder / "link").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(ParameterError, match="is a link to a folder"):
        sanitize_files([folder], tmp_path / "out.csv", M)
    (folder / "link").unlink()
    (folder / "gone.csv").symlink_to(tmp_path / "nowhere.csv")
    with pytest.raises(ParameterError, match="leads nowhere"):
        sanitize_files([folder], tmp_path / "out.csv", M)


@pytest.mark.parametrize("every_s", [0.0, 1e-9, 1e300, math.nan, -5.0])
def test_an_interval_is_one_that_a_clock_can_show(tmp_path: Path, every_s: float) -> None:
    source = table(tmp_path / "in.csv", rows("ann", 3))
    with pytest.raises(ParameterError, match="a millisecond to a century"):
        sanitize_files([source], tmp_path / "out.csv", M, every_s=every_s)


def test_users_that_are_files_need_no_column(tmp_path: Path) -> None:
    blank = [("", *row[1:]) for row in rows("", 3)]
    source, out = table(tmp_path / "ann.csv", blank), tmp_path / "out.csv"
    with pytest.raises(PointError, match="it has no user"):
        sanitize_files([source], out, M)
    assert sanitize_files([source], out, M, users_from="file").released == 3
    assert {row["user"] for row in released(out)} == {"ann"}


def test_what_looks_like_a_place_is_not_told_as_a_column(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,2025-06-03T08:00Z,N60 10 12,E24 56 18\n")
    with pytest.raises(hereish.HereishError) as wrong:
        load([str(path)], Columns())
    for digits in ("60 10", "24 56", "N6", "E2"):
        assert digits not in str(wrong.value)


def test_a_day_without_dashes_is_a_day(tmp_path: Path) -> None:
    source = table(tmp_path / "in.csv", [("ann", "20250603", 60, 25), ("ann", "20250604", 60, 25)])
    days = load([source], Columns()).at_us // 86_400_000_000
    assert days.tolist() == [20242, 20243]


def test_parquet_is_not_packed_again(tmp_path: Path) -> None:
    source = table(tmp_path / "in.csv", rows("ann", 3))
    with pytest.raises(ParameterError, match="packed inside"):
        sanitize_files([source], tmp_path / "out.parquet.gz", M)


@pytest.mark.parametrize(
    "told",
    [
        '{"hereish": {"guarantee": "x", "private": true, "eps_per_m": "abc", "window": "day", '
        '"time_zone": null}}',
        '{"hereish": {"guarantee": 5, "private": true, "eps_per_m": 1.0, "window": "day", '
        '"time_zone": null}}',
        '{"hereish": [1]}',
        "[]",
        "{",
    ],
)
def test_a_promise_that_makes_no_sense_is_none(tmp_path: Path, told: str) -> None:
    source = table(tmp_path / "in.csv", rows("ann", 3))
    (tmp_path / "in.csv-metadata.json").write_text(told)
    assert promise_of(source) is None


def test_an_output_of_several_files_can_be_shown(tmp_path: Path) -> None:
    later = table(tmp_path / "a.csv", rows("ann", 5, NOON + timedelta(hours=1)))
    earlier = table(tmp_path / "b.csv", rows("ann", 5))
    out = tmp_path / "out.csv"
    sanitize_files([later, earlier], out, M)
    assert len(load([str(out)], Columns())) == 10
    assert len(load([str(out)], Columns(), in_order=False)) == 10
