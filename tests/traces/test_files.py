"""Files in, files out: one budget a user and window, every point accounted for, all or nothing."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.errors import ParameterError, PointError
from hereish.traces import pipeline, reading
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows, sanitize_files
from hereish.traces.summary import Summary

PRIVACY = hereish.Privacy(math.log(10), 100)
BUDGET = PRIVACY.eps_per_m
M = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("UTC"))
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


def table(path: Path, rows: Sequence[tuple[object, ...]], header: str = "user,time,lat,lon") -> str:
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header.split(","))
        out.writerows(rows)
    return str(path)


def rows(
    user: str, points: int, start: datetime = NOON, step_s: float = 60.0
) -> list[tuple[object, ...]]:
    """Somebody who wanders off, so that guesses fail and the budget is used up."""
    return [
        (user, (start + timedelta(seconds=step_s * i)).isoformat(), 60.1 + 0.05 * (i % 500), 24.9)
        for i in range(points)
    ]


def released(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def spent(out: list[dict[str, str]]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for row in out:
        costs[row["user"]] = costs.get(row["user"], 0.0) + float(row["cost"])
    return costs


def accounted(summary: Summary) -> bool:
    left_out = sum(summary.bad.values()) + summary.thinned + summary.refused
    return summary.points == summary.released + left_out


def test_one_budget_for_a_user_and_day_across_files_in_any_order(tmp_path: Path) -> None:
    morning = table(tmp_path / "b.csv", rows("ann", 20) + rows("bob", 3))
    evening = table(tmp_path / "a.csv", rows("ann", 20, NOON + timedelta(hours=6)))
    out = tmp_path / "out.csv"
    summary = sanitize_files([evening, morning], out, M)
    assert accounted(summary)
    assert (summary.users, summary.files, summary.points) == (2, 2, 43)
    costs = spent(released(out))
    assert costs["ann"] <= BUDGET
    assert costs["ann"] > 0.8 * BUDGET  # the budget was there to be used, by the morning
    times = [row["time"] for row in released(out) if row["user"] == "ann"]
    assert max(times) < "2026-05-05T13"
    alone = sanitize_files([evening], tmp_path / "alone.csv", M)
    assert alone.released > 0  # the control: by itself the evening is released


def test_two_days_have_two_budgets_and_no_reset_has_one(tmp_path: Path) -> None:
    two = rows("ann", 20) + rows("ann", 20, NOON + timedelta(days=1))
    source, out = table(tmp_path / "in.csv", two), tmp_path / "out.csv"
    sanitize_files([source], out, M)
    assert BUDGET < spent(released(out))["ann"] <= 2 * BUDGET
    sanitize_files([source], out, hereish.fixed_utility(PRIVACY, 3000))
    assert spent(released(out))["ann"] <= BUDGET


def test_a_trace_can_have_a_budget(tmp_path: Path) -> None:
    two = [("ann", k, *row[1:]) for k in "xy" for row in rows("ann", 20)]
    source = table(tmp_path / "in.csv", two, "user,trace,time,lat,lon")
    out = tmp_path / "out.csv"
    m = hereish.fixed_utility(PRIVACY, 3000, window=EachTrace())
    summary = sanitize_files([source], out, m)
    assert summary.traces == 2
    assert "each trace" in summary.guarantee
    for trace in "xy":
        costs = [float(row["cost"]) for row in released(out) if row["trace"] == trace]
        assert 0.8 * BUDGET < math.fsum(costs) <= BUDGET


def test_the_day_is_that_of_the_time_zone(tmp_path: Path) -> None:
    # One evening in UTC is two days in Tokyo.
    source = table(tmp_path / "in.csv", rows("ann", 40, NOON + timedelta(hours=2), 300.0))
    out = tmp_path / "out.csv"
    tokyo = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("Asia/Tokyo"))
    sanitize_files([source], out, tokyo)
    assert spent(released(out))["ann"] > BUDGET
    sanitize_files([source], out, M)
    assert spent(released(out))["ann"] <= BUDGET


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_units_of_any_size_keep_the_budget_and_every_point(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small units stand for large files.
    monkeypatch.setattr(pipeline, "BATCH_ROWS", batch)
    parts = [
        table(tmp_path / f"{i}.csv", rows("ann", 9, NOON + timedelta(minutes=9 * i)))
        for i in range(6)
    ]
    out = tmp_path / "out.csv"
    summary = sanitize_files(parts, out, M)
    assert accounted(summary)
    assert summary.points == 54
    assert 0.8 * BUDGET < spent(released(out))["ann"] <= BUDGET


def test_a_part_that_comes_too_late_is_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "BATCH_ROWS", 4)
    late = table(tmp_path / "late.csv", rows("ann", 4, NOON - timedelta(hours=1)))
    first = table(tmp_path / "first.csv", rows("ann", 4))
    out = tmp_path / "out.csv"
    summary = sanitize_files([first, late], out, M)
    assert accounted(summary)
    assert (summary.points, summary.files, sum(summary.bad.values())) == (8, 2, 0)
    times = [row["time"] for row in released(out)]
    assert times == sorted(times)
    assert times[0].startswith("2026-05-05T11:00")


def test_thinning_keeps_reports_apart_across_files(tmp_path: Path) -> None:
    first = table(tmp_path / "a.csv", rows("ann", 100, step_s=10.0))
    then = table(tmp_path / "b.csv", rows("ann", 100, NOON + timedelta(seconds=1005), 10.0))
    out = tmp_path / "out.csv"
    summary = sanitize_files([first, then], out, M, every_s=300.0)
    assert accounted(summary)
    assert summary.thinned == 200 - 7
    times = [datetime.fromisoformat(row["time"]) for row in released(out)]
    assert all(b - a >= timedelta(minutes=5) for a, b in itertools.pairwise(times))


def test_bad_rows_stop_it_by_default_and_are_counted_when_dropped(tmp_path: Path) -> None:
    some = rows("ann", 5)
    some[3] = ("ann", some[3][1], 400.171234, 24.9)
    source, out = table(tmp_path / "in.csv", some), tmp_path / "out.csv"
    with pytest.raises(PointError, match=r"in\.csv, line 5: its latitude is outside") as wrong:
        sanitize_files([source], out, M)
    assert "171234" not in str(wrong.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv"]  # not even an unfinished one
    summary = sanitize_files([source], out, M, drop_bad=True)
    assert accounted(summary)
    assert list(summary.bad.values()) == [1]
    assert len(released(out)) == 4


def test_if_nothing_can_be_used_nothing_is_written(tmp_path: Path) -> None:
    swapped = [(user, at, float(str(lon)) * 5, lat) for user, at, lat, lon in rows("ann", 3)]
    source, out = table(tmp_path / "in.csv", swapped), tmp_path / "out.csv"
    with pytest.raises(PointError, match=r"line 2: .*swapped\?"):
        sanitize_files([source], out, M)
    empty = tmp_path / "empty.gpx"
    empty.write_text("")
    for name in (source, str(empty)):
        with pytest.raises(PointError, match="no points that can be used"):
            sanitize_files([name], out, M, drop_bad=True)
    assert not out.exists()


def test_the_same_seed_gives_the_same_file_whatever_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_WORTH_PROCESSES", 0)  # so that these few bytes are worth them
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(4):
        table(folder / f"{i}.csv", rows(f"user {i % 2}", 2000, step_s=1.0 + i))
    outs = []
    for jobs in (1, 3):
        out = tmp_path / f"{jobs}.csv"
        summary = sanitize_files([folder], out, M, seed=5, jobs=jobs, every_s=60.0)
        assert not summary.private
        assert summary.guarantee.startswith("NOT PRIVATE")
        outs.append(out.read_bytes())
    assert outs[0] == outs[1]
    sanitize_files([folder], tmp_path / "secure.csv", M, every_s=60.0)
    assert (tmp_path / "secure.csv").read_bytes() != outs[0]


def test_a_folder_comes_out_as_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    table(folder / "a.csv", rows("ann", 3))
    table(folder / "deep" / "b.csv", rows("bob", 3))
    out = tmp_path / "out"
    sanitize_files([folder], out, M)
    found = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    assert found == ["a.csv", "csv-metadata.json", "deep/b.csv"]
    with pytest.raises(ParameterError, match="is there already"):
        sanitize_files([folder], out, M)
    # It can be read again: what is beside the data is not taken for data.
    assert len(load_rows([str(out)], Columns())) == 6


@pytest.mark.parametrize(("form", "ending"), [("gpx", "gpx"), ("geojson", "geojson")])
def test_a_folder_can_change_its_format(tmp_path: Path, form: str, ending: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    table(folder / "a.csv", rows("ann", 3))
    out = tmp_path / "out"
    sanitize_files([folder], out, M, to_form=form)
    assert [p.name for p in out.iterdir()] == [f"a.{ending}"]
    assert len(load_rows([str(out)], Columns())) == 3


def test_users_and_traces_become_the_trees_of_geolife_and_tdrive(tmp_path: Path) -> None:
    both = [(u, k, *row[1:]) for u in ("ann", "b/b") for k in "xy" for row in rows(u, 2)]
    source = table(tmp_path / "in.csv", both, "user,trace,time,lat,lon")
    sanitize_files([source], tmp_path / "geolife", M, to_form="geolife")
    found = sorted(str(p.relative_to(tmp_path)) for p in (tmp_path / "geolife").rglob("*.plt"))
    assert [Path(name).name for name in found] == ["x.plt", "y.plt", "x.plt", "y.plt"]
    assert found[0] == "geolife/Data/ann/Trajectory/x.plt"
    assert len(load_rows([str(tmp_path / "geolife")], Columns())) == 8
    sanitize_files([source], tmp_path / "tdrive", M, to_form="tdrive")
    assert len(list((tmp_path / "tdrive").glob("*.txt"))) == 2


def test_files_that_tell_different_things_are_not_put_into_one_table(tmp_path: Path) -> None:
    known = table(tmp_path / "known.csv", rows("ann", 3))
    plain = table(tmp_path / "plain.csv", [row[1:] for row in rows("", 3)], "time,lat,lon")
    traced = [("ann", "x", *row[1:]) for row in rows("ann", 3, NOON + timedelta(days=2))]
    traces = table(tmp_path / "traces.csv", traced, "user,trace,time,lat,lon")
    for form in ("csv", "parquet", "gpx", "geojson"):
        out = tmp_path / f"out.{form}"
        with pytest.raises(ParameterError, match=r"known\.csv tells users and .*plain\.csv none"):
            sanitize_files([plain, known], out, M)
        with pytest.raises(ParameterError, match=r"traces\.csv tells traces and .*known\.csv none"):
            sanitize_files([known, traces], out, M)
        assert not out.exists()
    sanitize_files([known, traces, plain], tmp_path / "apart", M)
    assert len(list((tmp_path / "apart").glob("*.csv"))) == 3


def test_numbers_and_texts_are_not_put_into_one_column(tmp_path: Path) -> None:
    import pyarrow as pa

    text, number = table(tmp_path / "a.csv", rows("ann", 3)), tmp_path / "b.parquet"
    batch = load_rows([text], Columns())
    columns = {"user": [7] * 3, "lat": batch.lat, "lon": batch.lon}
    at = pa.array(batch.at_us, pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({**columns, "time": at}), number)
    with pytest.raises(ParameterError, match="numbers in one input and texts in another"):
        sanitize_files([number, text], tmp_path / "out.parquet", M)
    sanitize_files([text, number], tmp_path / "out.parquet", M)
    assert set(pq.read_table(tmp_path / "out.parquet")["user"].to_pylist()) == {"ann", "7"}


def test_a_plt_file_holds_one_trace(tmp_path: Path) -> None:
    both = table(tmp_path / "in.csv", rows("ann", 3) + rows("bob", 3))
    with pytest.raises(ParameterError, match="holds one trace; name a folder"):
        sanitize_files([both], tmp_path / "out.plt", M)
    one = table(tmp_path / "one.csv", rows("ann", 3))
    sanitize_files([one], tmp_path / "out.plt", M)
    assert len(load_rows([str(tmp_path / "out.plt")], Columns())) == 3


def test_numbered_traces_of_two_files_stay_two_in_a_tree(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, hours in (("a", 0), ("b", 1)):
        plain = table(tmp_path / f"{name}.csv", rows("ann", 3, NOON + timedelta(hours=hours)))
        sanitize_files([plain], folder / f"{name}.gpx", M)
    for gpx in folder.iterdir():  # as any other program writes it: without our ids
        gpx.write_text(re.sub(r"<hereish:(user|trace)>.*?</hereish:\1>", "", gpx.read_text()))
    sanitize_files([folder], tmp_path / "tree", M, to_form="geolife")
    found = sorted(p.name for p in (tmp_path / "tree").rglob("*.plt"))
    assert found == ["1-1.plt", "2-1.plt"]
    sanitize_files([folder], tmp_path / "one.csv", M)
    assert {row["trace"] for row in released(tmp_path / "one.csv")} == {"1-1", "2-1"}
    sanitize_files([folder / "a.gpx"], tmp_path / "alone.csv", M)
    assert {row["trace"] for row in released(tmp_path / "alone.csv")} == {"1"}


@pytest.mark.parametrize("window", ["none", "day"])
def test_tdrive_times_come_out_in_the_zone_they_went_in(tmp_path: Path, window: str) -> None:
    source = tmp_path / "1.txt"
    source.write_text("1,2008-02-02 15:36:08,116.51172,39.92123\n")
    day = hereish.Day("Asia/Shanghai") if window == "day" else None
    m = hereish.fixed_utility(PRIVACY, 3000, window=day)
    out = tmp_path / "out.txt"
    sanitize_files([source], out, m, columns=Columns(zone=ZoneInfo("Asia/Shanghai")))
    assert out.read_text().startswith("1,2008-02-02 15:36:08,")


def test_files_or_folders_can_be_users(tmp_path: Path) -> None:
    plain = [row[1:] for row in rows("", 40)]
    for name in ("ann", "bob"):
        (tmp_path / name).mkdir()
        table(tmp_path / name / f"{name}.csv", plain, "time,lat,lon")
    inputs = [tmp_path / "ann", tmp_path / "bob"]
    out = tmp_path / "out.csv"
    together = sanitize_files(inputs, out, M)
    assert "user" not in released(out)[0]
    assert together.users == 1
    assert math.fsum(float(row["cost"]) for row in released(out)) <= BUDGET
    ways: tuple[Literal["file", "folder"], ...] = ("file", "folder")
    for way in ways:
        apart = sanitize_files(inputs, out, M, users_from=way)
        assert apart.users == 2
        assert set(spent(released(out))) == {"ann", "bob"}
        assert min(spent(released(out)).values()) > 0.8 * BUDGET


def test_the_same_user_as_text_and_number_is_one_user(tmp_path: Path) -> None:
    text = table(tmp_path / "a.csv", rows("7", 30))
    number = tmp_path / "b.parquet"
    sanitized = load_rows([text], Columns())
    import pyarrow as pa

    columns = {
        "user": pa.array([7] * 30),
        "time": pa.array(sanitized.at_us + 1, pa.timestamp("us", "UTC")),
        "lat": sanitized.lat,
        "lon": sanitized.lon,
    }
    pq.write_table(pa.table(columns), number)
    out = tmp_path / "out.csv"
    summary = sanitize_files([text, number], out, M)
    assert summary.users == 1
    assert spent(released(out))["7"] <= BUDGET


def test_gzip_goes_in_and_out(tmp_path: Path) -> None:
    plain = Path(table(tmp_path / "in.csv", rows("ann", 3)))
    packed = tmp_path / "in.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    out = tmp_path / "out.csv.gz"
    sanitize_files([packed], out, M)
    assert gzip.decompress(out.read_bytes()).startswith(b"user,time,lat,lon,kind,cost\n")
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(PointError, match="gzip"):
        sanitize_files([packed], out, M)


def test_an_input_is_never_the_output(tmp_path: Path) -> None:
    source = table(tmp_path / "in.csv", rows("ann", 3))
    before = Path(source).read_bytes()
    with pytest.raises(ParameterError, match="is an input"):
        sanitize_files([source], source, M)
    with pytest.raises(ParameterError, match="named twice"):
        sanitize_files([source, tmp_path / "*.csv"], tmp_path / "out.csv", M)
    with pytest.raises(ParameterError, match="no folder"):
        sanitize_files([source], tmp_path / "nowhere" / "out.csv", M)
    assert Path(source).read_bytes() == before


def test_an_old_output_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")
    good, bad = rows("ann", 3), rows("bob", 3)
    bad[2] = ("bob", "never", 60.0, 25.0)
    sources = [table(tmp_path / "a.csv", good), table(tmp_path / "b.csv", bad)]
    with pytest.raises(PointError, match=r"b\.csv, line 4"):
        sanitize_files(sources, out, M)
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "b.csv", "out.csv"]


def test_beside_a_csv_stands_what_was_promised(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    sanitize_files([table(tmp_path / "in.csv", rows("ann", 3))], out, M)
    about = json.loads((tmp_path / "out.csv-metadata.json").read_text())
    assert about["dc:description"] == M.guarantee_for_each("user")
    assert about["url"] == "out.csv"


def test_names_of_columns_stay_as_they_are(tmp_path: Path) -> None:
    given = [(lon, lat, at, user, 5) for user, at, lat, lon in rows("ann", 3)]
    source = table(tmp_path / "in.csv", given, "Longitude,Latitude,when,phone,battery")
    out = tmp_path / "out.csv"
    sanitize_files([source], out, M, columns=Columns(user="phone", time="when"))
    header = ["phone", "when", "Latitude", "Longitude", "kind", "cost"]
    assert list(released(out)[0]) == header
    columns = Columns(user="phone", time="when", keep=("battery",))
    sanitize_files([source], out, M, columns=columns)
    assert list(released(out)[0]) == [*header, "battery"]
    with pytest.raises(ParameterError, match="'kind' and 'cost' are of the output"):
        sanitize_files([source], out, M, columns=Columns(keep=("cost",)))


def test_the_displacement_is_that_of_the_released_points(tmp_path: Path) -> None:
    source, out = table(tmp_path / "in.csv", rows("ann", 300, step_s=600.0)), tmp_path / "out.csv"
    m = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Every(timedelta(hours=1)))
    summary = sanitize_files([source], out, m)
    true, reported = load_rows([source], Columns()), load_rows([str(out)], Columns())
    where = np.searchsorted(true.at_us, reported.at_us)
    away = m.space.distance(
        np.column_stack([true.lat, true.lon])[where], np.column_stack([reported.lat, reported.lon])
    )
    assert len(away) == summary.released
    assert summary.displacement_mean_m == pytest.approx(away.mean())
    assert summary.displacement_p90_m == pytest.approx(
        np.quantile(away, 0.9, method="inverted_cdf"), rel=2e-3
    )


def test_a_full_disk_or_a_broken_writer_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = table(tmp_path / "in.csv", rows("ann", 3)), tmp_path / "out.csv"
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        sanitize_files([source], out, M)
    leftovers = {p.name for p in tmp_path.iterdir()} - {"in.csv", "out.csv-metadata.json"}
    assert not leftovers
