"""What sanitised files are: folders, formats, names, and nothing that is half done."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.errors import ParameterError, PointError
from hereish.traces import atomic_file
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows, sanitize_files
from tests.support.trace_tables import BUDGET, NOON, PRIVACY, M, released, rows, spent, table


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
    kept = Columns(keep_trace_names=True)
    sanitize_files([source], tmp_path / "geolife", M, columns=kept, to_form="geolife")
    found = sorted(str(p.relative_to(tmp_path)) for p in (tmp_path / "geolife").rglob("*.plt"))
    assert [Path(name).name for name in found] == ["x.plt", "y.plt", "x.plt", "y.plt"]
    assert found[0] == "geolife/Data/ann/Trajectory/x.plt"
    assert len(load_rows([str(tmp_path / "geolife")], Columns())) == 8
    sanitize_files([source], tmp_path / "tdrive", M, to_form="tdrive")
    assert len(list((tmp_path / "tdrive").glob("*.txt"))) == 2


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "geoparquet", "gpkg"])
def test_a_file_of_which_nothing_was_released_has_all_its_columns(
    tmp_path: Path, form: str
) -> None:
    """What tools that read a folder as one table need of each of its files."""
    folder = tmp_path / "in"
    folder.mkdir()
    columns = Columns(keep=("speed",))
    for name, hours in (("a", 0), ("b", 1)):
        fixes = rows("ann", 40, NOON + timedelta(hours=hours))
        cells = [("ann", "x", *row[1:], 3) for row in fixes]
        table(folder / f"{name}.csv", cells, "user,trace,time,lat,lon,speed")
    out = tmp_path / "out"
    m = hereish.fixed_utility(PRIVACY, accuracy_m=500, window=hereish.Day("UTC"))
    tally = sanitize_files([folder], out, m, columns=columns, to_form=form)
    assert tally.refused > 40
    names = {path.stem: _column_names(path) for path in out.glob("?.*")}
    assert {"user", "trace", "time", "kind", "cost", "speed"} <= set(names["b"])
    assert names["a"] == names["b"]


def _column_names(path: Path) -> list[str]:
    if path.suffix.endswith("parquet"):
        return list(pq.read_schema(path).names)
    if path.suffix == ".gpkg":
        with closing(sqlite3.connect(path)) as database:
            return [row[1] for row in database.execute("PRAGMA table_info(reports)")]
    return re.split("[,\t]", path.read_text().splitlines()[0])


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


@pytest.mark.parametrize("at_once", [True, False])
def test_all_files_of_a_folder_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """At once where the system can; if it cannot or fails, each by itself."""
    names = [Path(f"{i}.gpx") for i in range(20)]
    for name in names:
        (tmp_path / name).write_text("<gpx/>")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(atomic_file, "_sync_file_system", lambda folder: at_once)
    atomic_file.sync_files(tmp_path, names)
    assert len(synced) == (0 if at_once else 20)
    atomic_file.sync_files(tmp_path, names[:3])
    assert len(synced) == (3 if at_once else 23)


def test_only_a_linux_that_reports_errors_writes_all_at_once(tmp_path: Path) -> None:
    reports = atomic_file._reports_sync_errors
    assert [reports(r) for r in ("6.18.44-fc", "5.8.0", "5.7.19", "4.19", "odd")] == [
        *(True, True, False, False, False),
    ]
    assert atomic_file._sync_file_system(tmp_path / "nowhere") is False
