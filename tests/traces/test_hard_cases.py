"""What somebody who wants to break it would try."""

from __future__ import annotations

import math
import resource
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

import hereish
from hereish.errors import ParameterError, PointError
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows, read_guarantee, sanitize_files
from hereish.traces.formats import _markup, gpx
from tests.support.trace_tables import BUDGET, NOON, PRIVACY, M, released, rows, spent, table


def test_spellings_of_one_user_share_one_budget(tmp_path: Path) -> None:
    spellings = ("josé", " josé", "jose\u0301", "josé ")
    every = [
        row
        for i, name in enumerate(spellings)
        for row in rows(name, 15, NOON + timedelta(minutes=20 * i))
    ]
    out = tmp_path / "out.csv"
    summary = sanitize_files([table(tmp_path / "in.csv", every)], out, M)
    assert summary.users == 1
    assert sum(spent(released(out)).values()) <= BUDGET
    assert {row["user"] for row in released(out)} <= set(spellings)  # as they were given


def test_a_track_longer_than_a_piece_has_one_budget(tmp_path: Path) -> None:
    """Even if the batch that it ends in also has a track that tells its id."""
    moments = [NOON + timedelta(seconds=i) for i in range(_markup.ROWS + 3000)]
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
    guarantee = read_guarantee(str(out))
    assert guarantee is not None
    assert guarantee.private
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
    with pytest.raises(PointError, match="is a broken link"):
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
        load_rows([str(path)], Columns())
    for digits in ("60 10", "24 56", "N6", "E2"):
        assert digits not in str(wrong.value)


def test_a_day_without_dashes_is_a_day(tmp_path: Path) -> None:
    source = table(tmp_path / "in.csv", [("ann", "20250603", 60, 25), ("ann", "20250604", 60, 25)])
    days = load_rows([source], Columns()).at_us // 86_400_000_000
    assert days.tolist() == [20242, 20243]


def test_parquet_is_not_packed_again(tmp_path: Path) -> None:
    source = table(tmp_path / "in.csv", rows("ann", 3))
    with pytest.raises(ParameterError, match="compressed inside"):
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
    assert read_guarantee(source) is None


def test_an_output_of_several_files_can_be_shown(tmp_path: Path) -> None:
    later = table(tmp_path / "a.csv", rows("ann", 5, NOON + timedelta(hours=1)))
    earlier = table(tmp_path / "b.csv", rows("ann", 5))
    out = tmp_path / "out.csv"
    sanitize_files([later, earlier], out, M)
    assert len(load_rows([str(out)], Columns())) == 10
    assert len(load_rows([str(out)], Columns(), in_order=False)) == 10


def test_rows_of_somebody_abroad_stay(tmp_path: Path) -> None:
    """Another offset is another way to write an instant, and no reason to leave a row out."""
    times = ["12:00:00+03:00", "12:30:00+03:00", "19:00:00+09:00", "10:30:00Z"]
    home = [("ann", f"2026-05-05T{time}", 60.0 + i, 25.0) for i, time in enumerate(times)]
    source = table(tmp_path / "in.csv", home)
    for drop_bad in (False, True):
        summary = sanitize_files([source], tmp_path / "out.csv", M, drop_bad=drop_bad)
        assert (summary.points, summary.bad) == (4, {})
    batch = load_rows([source], Columns())
    start = datetime(2026, 5, 5, 9, tzinfo=UTC).timestamp()
    assert ((batch.at_us / 1e6 - start) / 1800).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("turn", range(3))
def test_a_time_without_an_offset_is_left_out_wherever_it_stands(tmp_path: Path, turn: int) -> None:
    mixed = ["2026-05-05T10:00:00", "2026-05-05T12:30:00+03:00", "2026-05-05T10:30:00Z"]
    mixed = mixed[turn:] + mixed[:turn]
    home = [("ann", time, 60.0, 25.0) for time in mixed]
    source, out = table(tmp_path / "in.csv", home), tmp_path / "out.csv"
    line = 2 + mixed.index("2026-05-05T10:00:00")
    with pytest.raises(PointError, match=rf"line {line}: its time does not say its offset"):
        sanitize_files([source], out, M)
    summary = sanitize_files([source], out, M, drop_bad="all")
    assert (summary.points, sum(summary.bad.values())) == (3, 1)
    zone = Columns(zone=ZoneInfo("Europe/Helsinki"))
    assert not sanitize_files([source], out, M, columns=zone).bad


def test_what_a_damaged_table_raises_is_not_behind_the_error(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hereish.traces.discovery import find_sources
    from hereish.traces.faults import UnreadableFileError
    from hereish.traces.formats import parquet

    path = tmp_path / "in.parquet"
    places = {"lat": [60.1234567] * 5000, "lon": [25.0] * 5000, "time": list(range(5000))}
    pq.write_table(pa.table(places), path, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[4:60] = b"\xff" * 56
    path.write_bytes(data)
    with pytest.raises(UnreadableFileError) as wrong:
        list(parquet.read(find_sources([str(path)])[0], Columns()))
    assert wrong.value.__context__ is None
    assert wrong.value.__cause__ is None


def test_kept_columns_of_any_type_go_through_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In row groups of two, with categories of their own, deep inside of lists and structs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hereish.traces.formats import _parquet_writer

    monkeypatch.setattr(_parquet_writer, "_GROUP_ROWS", 2)
    words = pa.dictionary(pa.int32(), pa.string())
    plain = load_rows([table(tmp_path / "in.csv", rows("ann", 40))], Columns())
    columns = {
        "user": ["ann"] * 40,
        "time": pa.array(plain.at_us, pa.timestamp("us", "UTC")),
        "lat": plain.lat,
        "lon": plain.lon,
        "word": pa.array([f"w{i}" for i in range(40)], words),
        "deep": pa.array(
            [[{"at": f"d{i}"}] for i in range(40)], pa.list_(pa.struct([("at", words)]))
        ),
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    out = tmp_path / "out.parquet"
    asked = Columns(keep=("word", "deep"))
    summary = sanitize_files([tmp_path / "in.parquet"], out, M, columns=asked)
    assert 2 < summary.released < 40
    read = pq.read_table(out)
    assert read["word"].to_pylist() == [f"w{i}" for i in range(summary.released)]
    assert read["deep"].to_pylist() == [[{"at": f"d{i}"}] for i in range(summary.released)]
    used = {word for chunk in read["word"].chunks for word in chunk.dictionary.to_pylist()}
    assert used == {f"w{i}" for i in range(summary.released)}
