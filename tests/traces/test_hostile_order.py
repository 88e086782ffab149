"""The order of what comes out tells nothing: it is the same for every order of the input."""

from __future__ import annotations

import csv
import io
import json
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hereish
from hereish.errors import PointError
from hereish.traces import merging, pipeline, sanitize_frame
from hereish.traces.budgets import EachTrace, sanitize_rows
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows, sanitize_files
from hereish.traces.formats import _parquet_reader, _parquet_writer, _text, geojson, gpx
from hereish.viewer.pairs import pair_points

PRIVACY = hereish.Privacy(math.log(10), 100)
# Each report costs the same, so which are released does not depend on noise.
BY_DAY = hereish.independent(PRIVACY, reports=3, window=hereish.Day("UTC"))
BY_TRACE = hereish.independent(PRIVACY, reports=2, window=EachTrace())
ONCE = hereish.independent(PRIVACY, reports=4)
MECHANISMS = st.sampled_from([BY_DAY, BY_TRACE, ONCE])
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
KEY = hereish.KeyedDraws(b"k" * 32)


class Fix(NamedTuple):
    user: str
    trace: str
    minute: int
    lat: float
    lon: float
    note: str

    @property
    def time(self) -> datetime:
        return NOON + timedelta(minutes=self.minute)


NAMES = st.sampled_from(["ann", "bob", "10", "9", "007", "é", "a b"])
PLACES = st.floats(59.0, 61.0)
FIXES = st.lists(
    st.builds(
        Fix,
        user=NAMES,
        trace=st.sampled_from(["x", "y", "2", "10"]),
        minute=st.integers(0, 2000),  # a day and a half
        lat=PLACES,
        lon=PLACES,
        note=st.sampled_from(["a", "b", "c"]),
    ),
    min_size=1,
    max_size=14,
)
DIFFERENT = FIXES.map(lambda fixes: list({fix[:3]: fix for fix in fixes}.values()))


@st.composite
def permuted(draw: st.DrawFn, fixes: st.SearchStrategy[list[Fix]]) -> tuple[list[Fix], list[Fix]]:
    """Rows, and the same in another order."""
    one = draw(fixes)
    return one, draw(st.permutations(one))


def pandas_frame(fixes: Sequence[Fix]) -> Any:
    return pd.DataFrame(
        {
            "user": [fix.user for fix in fixes],
            "time": [fix.time for fix in fixes],
            "lat": [fix.lat for fix in fixes],
            "lon": [fix.lon for fix in fixes],
            "note": [fix.note for fix in fixes],
        }
    )


def geo_frame(fixes: Sequence[Fix]) -> Any:
    frame = pandas_frame(fixes)
    places = gpd.points_from_xy(frame.lon, frame.lat, crs="EPSG:4326")
    return gpd.GeoDataFrame(frame.drop(columns=["lat", "lon"]), geometry=places)


FRAMES: dict[str, tuple[Callable[[Sequence[Fix]], Any], Callable[[Any], list[dict[str, Any]]]]] = {
    "pandas": (pandas_frame, lambda out: out.to_dict("records")),
    "polars": (lambda fixes: pl.from_pandas(pandas_frame(fixes)), lambda out: out.to_dicts()),
    "arrow": (lambda fixes: pa.Table.from_pandas(pandas_frame(fixes)), lambda out: out.to_pylist()),
    "geopandas": (geo_frame, lambda out: out.to_dict("records")),
    "categories": (
        lambda fixes: pandas_frame(fixes).astype({"user": "category", "note": "category"}),
        lambda out: [
            *out.to_dict("records"),
            {"categories": [list(out[name].cat.categories) for name in ("user", "note")]},
        ],
    ),
    "dictionaries": (
        lambda fixes: pa.Table.from_pandas(
            pandas_frame(fixes).astype({"user": "category", "note": "category"})
        ),
        lambda out: [
            *out.to_pylist(),
            {"words": [out[name].combine_chunks().dictionary for name in ("user", "note")]},
        ],
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
@settings(max_examples=15, deadline=None)
@given(both=permuted(FIXES))
def test_a_frame_in_any_order_gives_the_same_frame(
    kind: str, both: tuple[list[Fix], list[Fix]]
) -> None:
    """With a key, to the last bit; so public data and ties come in one order too."""
    into, back = FRAMES[kind]
    one, other = (
        back(sanitize_frame(into(fixes), BY_DAY, user="user", keep=["note"], draws=KEY))
        for fixes in both
    )
    assert one == other


@settings(max_examples=15, deadline=None)
@given(both=permuted(FIXES))
def test_rows_in_any_order_are_taken_alike(both: tuple[list[Fix], list[Fix]]) -> None:
    """Rows of the same user and time too: which is first is no function of the input's order."""

    def released(fixes: Sequence[Fix]) -> list[tuple[Any, ...]]:
        names = sorted({fix.user for fix in fixes})
        user = np.array([names.index(fix.user) for fix in fixes])
        points = np.array([(fix.lat, fix.lon) for fix in fixes])
        at_s = np.array([fix.time.timestamp() for fix in fixes])
        out = sanitize_rows(BY_DAY, user, names, points, at_s, draws=KEY)
        told = zip(fixes, out.released.tolist(), out.value.tolist(), strict=True)
        # What `sanitize_rows` does not know may be swapped.
        return sorted((fix.user, fix[2:5], *map(repr, more)) for fix, *more in told)

    assert released(both[0]) == released(both[1])


def test_which_of_two_rows_of_one_time_comes_first_is_chance() -> None:
    """A budget for one report, and two rows: which is released must not tell which came first."""
    m = hereish.independent(PRIVACY, reports=1)
    frame = pandas_frame([Fix("ann", "x", 0, 59.0, 25.0, "a")] * 2)
    frame["lat"] = [10.0, 60.0]
    runs = 120
    first = sum(sanitize_frame(frame, m, user="user")["lat"][0] < 35.0 for _ in range(runs))
    # Two-sided, alpha = 1e-6: with a chance of 1/2 it is outside of this once in a million.
    assert 33 < first < 87


# Files


def write_csv(path: Path, fixes: Sequence[Fix]) -> Path:
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(["user", "trace", "time", "lat", "lon", "note"])
    out.writerows((f.user, f.trace, f.time.isoformat(), f.lat, f.lon, f.note) for f in fixes)
    target = path.with_suffix(".csv")
    target.write_text(text.getvalue(), encoding="utf-8")
    return target


def write_points(path: Path, fixes: Sequence[Fix]) -> Path:
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [f.lon, f.lat]},
            "properties": {
                "user": f.user,
                "trace": f.trace,
                "time": f.time.isoformat(),
                "note": f.note,
            },
        }
        for f in fixes
    ]
    target = path.with_suffix(".geojson")
    target.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return target


def _grouped(fixes: Sequence[Fix]) -> list[list[Fix]]:
    """By user and trace, in the order in which they come."""
    groups: dict[tuple[str, str], list[Fix]] = {}
    for fix in fixes:
        groups.setdefault((fix.user, fix.trace), []).append(fix)
    return list(groups.values())


def write_lines(path: Path, fixes: Sequence[Fix]) -> Path:
    """A line for each trace, without an id: it is numbered."""
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "LineString", "coordinates": [[f.lon, f.lat] for f in group]},
            "properties": {
                "user": group[0].user,
                "coordTimes": [f.time.isoformat() for f in group],
                "note": [f.note for f in group] if len(group) > 1 else group[0].note,
            },
        }
        for group in _grouped(fixes)
    ]
    target = path.with_suffix(".geojson")
    target.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return target


def write_gpx(path: Path, fixes: Sequence[Fix]) -> Path:
    """A track for each trace, without an id: it is numbered."""
    tracks = [
        "<trk><trkseg>"
        + "".join(
            f'<trkpt lat="{f.lat}" lon="{f.lon}"><time>{f.time.isoformat()}</time>'
            f"<note>{f.note}</note></trkpt>"
            for f in group
        )
        + "</trkseg></trk>"
        for group in _grouped(fixes)
    ]
    target = path.with_suffix(".gpx")
    target.write_text(f'<gpx version="1.1">{"".join(tracks)}</gpx>')
    return target


def write_parquet(path: Path, fixes: Sequence[Fix]) -> Path:
    columns = pandas_frame(fixes).assign(trace=[fix.trace for fix in fixes])
    target = path.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pandas(columns), target, row_group_size=3)
    return target


def write_numbers(path: Path, fixes: Sequence[Fix]) -> Path:
    """Users that are whole numbers."""
    numbers = {"ann": 1, "bob": 2, "10": 10, "9": 9, "007": 70, "é": 3, "a b": 4}
    columns = pandas_frame(fixes).assign(
        user=[numbers[fix.user] for fix in fixes], trace=[fix.trace for fix in fixes]
    )
    target = path.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pandas(columns), target)
    return target


INPUTS = {
    "csv": write_csv,
    "points": write_points,
    "lines": write_lines,
    "gpx": write_gpx,
    "parquet": write_parquet,
    "numbers": write_numbers,
}
OUTPUTS = ["out.csv", "out.geojson", "out.gpx", "out.parquet", "out.geoparquet"]


@contextmanager
def small_units(rows: int) -> Iterator[None]:
    """A few rows stand for millions: none of the files fits into memory."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (pipeline, "BATCH_ROWS"),
            (_text, "BATCH_ROWS"),
            (_text, "BLOCK_ROWS"),
            (_parquet_reader, "BATCH_ROWS"),
            (_parquet_writer, "_GROUP_ROWS"),
            (gpx, "ROWS"),
            (geojson, "ROWS"),
            (merging, "BLOCK_ROWS"),
            (merging, "_IN_MEMORY"),
        ):
            patch.setattr(module, name, rows)
        yield


def told(path: Path) -> list[tuple[Any, ...]]:
    """The public columns of an output, in its order."""
    batch = load_rows([str(path)], Columns(keep=("note",)), in_order=False)
    nothing = [None] * len(batch)
    users = nothing if batch.user is None else batch.user.values()
    traces = nothing if batch.trace is None else batch.trace.values()
    notes = batch.kept["note"].tolist()
    return list(zip(users, traces, batch.at_us.tolist(), notes, strict=True))


def structure(path: Path) -> Any:
    """What a file says besides places, kinds and costs: for Parquet also how it is cut."""
    if path.suffix in (".parquet", ".geoparquet"):
        about = pq.ParquetFile(path).metadata
        return [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    return None


@pytest.mark.parametrize("form", INPUTS)
@settings(max_examples=15, deadline=None)
@given(
    both=permuted(DIFFERENT),
    target=st.sampled_from(OUTPUTS),
    rows=st.sampled_from([1, 2, 3, 100]),
    m=MECHANISMS,
    every=st.sampled_from([None, 300.0]),
)
def test_a_file_in_any_order_gives_the_same_rows_in_the_same_order(
    form: str,
    both: tuple[list[Fix], list[Fix]],
    target: str,
    rows: int,
    m: hereish.PredictiveMechanism,
    every: float | None,
) -> None:
    found = []
    with TemporaryDirectory() as name:
        for i, fixes in enumerate(both):
            folder = Path(name, str(i))
            folder.mkdir()
            source = INPUTS[form](folder / "in", fixes)
            with small_units(rows):
                summary = sanitize_files(
                    [source], folder / target, m, every_s=every, columns=Columns(keep=("note",))
                )
            assert summary.points == summary.released + summary.refused + summary.thinned
            assert not [path for path in folder.iterdir() if path.name.startswith(".")]
            found.append((told(folder / target), structure(folder / target), summary.released))
    assert found[0] == found[1]
    assert len(found[0][0]) == found[0][2]


@settings(max_examples=15, deadline=None)
@given(both=permuted(FIXES), rows=st.sampled_from([1, 3, 100]), m=MECHANISMS)
def test_rows_of_one_time_that_are_left_out_are_not_chosen_by_their_order(
    both: tuple[list[Fix], list[Fix]], rows: int, m: hereish.PredictiveMechanism
) -> None:
    """With drop_bad, of several at one time one stays, and so do all that are out of order."""
    found = []
    with TemporaryDirectory() as name:
        for i, fixes in enumerate(both):
            source = write_csv(Path(name, f"in{i}"), fixes)
            out = Path(name, f"out{i}.csv")
            with small_units(rows):
                summary = sanitize_files(
                    [source], out, m, drop_bad=True, columns=Columns(keep=("note",))
                )
            assert sum(summary.bad.values()) == len(fixes) - len({fix[:3] for fix in fixes})
            found.append(told(out))
    assert found[0] == found[1]


@settings(max_examples=15, deadline=None)
@given(
    both=permuted(DIFFERENT),
    cuts=st.lists(st.integers(0, 14), min_size=2, max_size=2),
    rows=st.sampled_from([1, 3, 100]),
    to=st.sampled_from(["csv", "geojson", "parquet", "gpx", "geolife", "tdrive"]),
)
def test_a_file_for_each_user_tells_nothing_of_the_files_that_were_read(
    both: tuple[list[Fix], list[Fix]], cuts: list[int], rows: int, to: str
) -> None:
    """The same rows in other files and in another order: the same folder."""
    found = []
    with TemporaryDirectory() as name:
        for i, (fixes, cut) in enumerate(zip(both, cuts, strict=True)):
            folder = Path(name, str(i))
            folder.mkdir()
            parts = [part for part in (fixes[:cut], fixes[cut:]) if part]
            for number, part in enumerate(parts):
                write_csv(folder / f"part {number if i else 9 - number}", part)
            out = Path(name, f"out{i}")
            with small_units(rows):
                sanitize_files([folder], out, BY_DAY, to_form=to, split_by="user")
            files = sorted(path for path in out.rglob("*") if path.suffix != ".json")
            found.append(
                [(path.relative_to(out), rows_of(path)) for path in files if path.is_file()]
            )
    assert found[0] == found[1]
    assert found[0]


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    batch = load_rows([str(path)], Columns(), in_order=False)
    nothing = [None] * len(batch)
    ids = [nothing if own is None else own.values() for own in (batch.user, batch.trace)]
    return list(zip(*ids, batch.at_us.tolist(), strict=True))


@settings(max_examples=15, deadline=None)
@given(both=permuted(DIFFERENT), rows=st.sampled_from([1, 3, 100]))
def test_in_a_folder_each_file_is_in_order(both: tuple[list[Fix], list[Fix]], rows: int) -> None:
    found = []
    with TemporaryDirectory() as name:
        for i, fixes in enumerate(both):
            folder = Path(name, str(i))
            folder.mkdir()
            for part in ("x", "y", "2", "10"):
                own = [fix for fix in fixes if fix.trace == part]
                if own:
                    write_csv(folder / part, own)
            out = Path(name, f"out{i}")
            with small_units(rows):
                sanitize_files([folder], out, BY_DAY, columns=Columns(keep=("note",)))
            found.append({path.name: told(path) for path in out.glob("*.csv")})
    assert found[0] == found[1]


@settings(max_examples=15, deadline=None)
@given(fixes=DIFFERENT, rows=st.sampled_from([1, 3, 100]), m=MECHANISMS)
def test_the_order_of_the_input_is_kept_if_it_is_asked_for(
    fixes: list[Fix], rows: int, m: hereish.PredictiveMechanism
) -> None:
    with TemporaryDirectory() as name:
        source, out = write_csv(Path(name, "in"), fixes), Path(name, "out.csv")
        with small_units(rows):
            summary = sanitize_files(
                [source], out, m, order="input", columns=Columns(keep=("note",))
            )
        assert "which this does not cover" in summary.guarantee
        keys = [(user, trace, at) for user, trace, at, _ in told(out)]
        given_ = [(f.user, f.trace, round(f.time.timestamp() * 1e6)) for f in fixes]
        assert keys == [key for key in given_ if key in keys]
        about = json.loads(Path(f"{out}-metadata.json").read_text())["hereish"]
        assert "in the order of the input" in about["guarantee"]


def test_standard_input_that_would_have_to_be_read_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixes = [Fix("ann", "x", minute, 60.0, 25.0, "") for minute in (5, 4, 3, 2, 1)]
    source = write_csv(tmp_path / "in", fixes)
    out = tmp_path / "out.csv"
    with source.open("rb") as file, small_units(2):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        with pytest.raises(PointError, match="save them to a file first"):
            sanitize_files(["-"], out, BY_DAY)
    assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_standard_input_by_time_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users take turns, so rows must be merged, and cannot be read again."""
    fixes = [Fix(user, "x", minute, 60.0, 25.0, "") for minute in range(3) for user in ("b", "a")]
    source = write_csv(tmp_path / "in", fixes)
    out = tmp_path / "out.csv"
    with source.open("rb") as file, small_units(2):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        sanitize_files(["-"], out, BY_DAY, columns=Columns(keep=("note",)))
    assert [row[0] for row in told(out)] == ["a"] * 3 + ["b"] * 3


def test_no_true_place_is_in_a_file_that_is_not_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are merged in files without a name: what is written to them has been released."""
    written: list[bytes] = []
    dump = pickle.dump

    def watched(value: Any, file: Any) -> None:
        written.append(pickle.dumps(value))
        dump(value, file)

    monkeypatch.setattr(pickle, "dump", watched)
    fixes = [
        Fix(f"user {i % 7}", "x", i // 7, 59.0 + i / 1e3 + 1e-9, 25.0 + i / 1e4 + 1e-9, "")
        for i in range(100)
    ]
    source = write_csv(tmp_path / "in", fixes)
    with small_units(8):
        sanitize_files([source], tmp_path / "out.csv", BY_DAY)
    assert written
    everything = b"".join(written)
    for fix in fixes:
        for value in (fix.lat, fix.lon):
            assert np.float64(value).tobytes() not in everything


def test_a_report_is_shown_with_its_own_point_although_the_order_is_another(
    tmp_path: Path,
) -> None:
    """Two traces of one user at the same times, in the file the other way round."""
    true = [
        Fix("ann", trace, minute, 60.0 + (trace == "y"), 25.0, "")
        for trace in "yx"
        for minute in (0, 1)
    ]
    here, there = (
        load_rows([str(write_csv(tmp_path / name, fixes))], Columns())
        for name, fixes in (("true", true), ("reported", sorted(true)))
    )
    shown = pair_points(here, there, None, ZoneInfo("UTC"))
    assert shown.error_m.max() < 1.0


# The attack


def guessed(released: np.typing.NDArray[np.float64], neighbours: int) -> Any:
    """Latitudes from the order alone: the mean of those that stand next to each."""
    total = np.cumsum(np.pad(released, 1 + neighbours, mode="reflect"))
    return (total[2 * neighbours + 1 :] - total[: -2 * neighbours - 1])[: len(released)] / (
        2 * neighbours + 1
    )


@pytest.mark.parametrize("order", ["input", "public"])
def test_who_stands_beside_whom_tells_no_latitude(order: Any) -> None:
    """20,000 users by latitude: their order tells it to some metres, the released values do not."""
    rng = np.random.default_rng(3)
    users = 20_000
    truth = np.sort(rng.uniform(60.1, 60.3, users))
    frame = pd.DataFrame(
        {
            "user": rng.permutation(users),
            "time": pd.Timestamp(NOON),
            "lat": truth,
            "lon": rng.uniform(24.8, 25.0, users),
        }
    )
    m = hereish.independent(PRIVACY, accuracy_m=3000)
    out = sanitize_frame(frame, m, user="user", order=order)
    assert len(out) == users
    true = frame.set_index("user")["lat"].loc[out["user"]].to_numpy()
    metres = 111_195.0
    from_order = np.median(np.abs(guessed(out["lat"].to_numpy(), 500) - true)) * metres
    from_value = np.median(np.abs(out["lat"].to_numpy() - true)) * metres
    assert from_value > 400
    if order == "input":
        assert from_order < 60
    else:
        assert from_order > 2 * from_value


def test_two_people_a_metre_apart_do_not_swap_places() -> None:
    for north in ("ann", "bob"):
        south = "bob" if north == "ann" else "ann"
        frame = pandas_frame(
            [Fix(south, "x", 0, 60.0, 25.0, ""), Fix(north, "x", 0, 60.00001, 25.0, "")]
        )
        out = sanitize_frame(frame.sort_values("lat"), BY_DAY, user="user")
        assert out["user"].tolist() == ["ann", "bob"]
