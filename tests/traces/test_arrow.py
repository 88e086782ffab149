"""Sorted Arrow batches: the bits of frames, whatever the size of a batch, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hereish
from hereish.core import batch as core_batch
from hereish.core import step, stretches
from hereish.errors import ParameterError, PointError
from hereish.traces import arrow
from hereish.traces.arrow import ArrowColumns, ArrowCounts, canonical_users, sanitize_batches
from hereish.traces.budgets import EachTrace
from hereish.traces.frames import sanitize_frame

PRIVACY = hereish.Privacy(math.log(10), 100)
KEY = hereish.KeyedDraws(b"a key of tests, of 32 bytes long")
COLUMNS = ArrowColumns("user", "time", "lat", "lon")
MIDNIGHT_US = 1_700_006_400_000_000
MECHANISMS = {
    "whole day": hereish.whole_day(PRIVACY, window=hereish.Day("Europe/Helsinki")),
    "fixed utility, days": hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("UTC")),
    "fixed rate, for ever": hereish.fixed_rate(PRIVACY, 30),
    "the guess at the end": hereish.fixed_rate(PRIVACY, 5, on_exhausted="predict"),
}


def times(micros: Any) -> pa.Array:
    return pa.array(np.asarray(micros) + MIDNIGHT_US, pa.timestamp("us", tz="UTC"))


def people(users: int = 40, reports: int = 60, step_s: int = 600, seed: int = 1) -> pa.Table:
    """Walks of some days, sorted by user and time, with several reports at some times."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, 3 * 86400 // step_s, (users, reports)), axis=1) * step_s
    walk = rng.normal(0.0, 0.004, (users, reports, 2)).cumsum(axis=1).reshape(-1, 2)
    return pa.table(
        {
            "user": np.repeat([f"user {i:03}" for i in range(users)], reports),
            "time": times(at.ravel() * 1_000_000),
            "lat": 60.0 + walk[:, 0],
            "lon": 25.0 + walk[:, 1],
        }
    )


def released(table: pa.Table, m: Any, columns: ArrowColumns = COLUMNS, **options: Any) -> pa.Table:
    size = options.pop("size", 1000)
    batches = sanitize_batches(table.to_batches(max_chunksize=size), m, KEY, columns, **options)
    return pa.Table.from_batches(list(batches), schema=columns.schema(table.schema))


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Chunks of any size: what is carried from one to the next is then seen in small tables."""
    return lambda rows: monkeypatch.setattr(arrow, "CHUNK_ROWS", rows)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("size", "rows"), [(7, 64), (100, 500), (1000, 1000), (10**6, 360_000)])
def test_the_bits_are_those_of_a_frame_in_batches_of_any_size(
    chunks: Any, name: str, size: int, rows: int
) -> None:
    m, table = MECHANISMS[name], people()
    chunks(rows)
    out = released(table, m, size=size)
    frame = sanitize_frame(table, m, user="user", draws=KEY)
    assert out.equals(frame.replace_schema_metadata(None).cast(out.schema))
    assert 0 < len(out) <= len(table)


def test_no_budget_is_passed_however_rows_are_cut(chunks: Any) -> None:
    m, table = MECHANISMS["fixed utility, days"], people(5, 3000, 60)
    for rows in (50, 333, 10**6):
        chunks(rows)
        counts = ArrowCounts()
        out = released(table, m, counts=counts).to_pandas()
        day = out["time"].dt.date
        spent = out.groupby(["user", day])["cost"].sum()
        assert (spent <= PRIVACY.eps_per_m).all()
        assert (spent > 0.5 * PRIVACY.eps_per_m).any()
        assert counts.points == len(table) == counts.released + counts.refused
        assert counts.released == len(out)


def test_a_lone_user_with_very_many_points_is_left_once_the_budget_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = people(1, 400_000, 1)
    rows = 0
    prepare = step.prepare

    def counted(m: Any, run: Any, at_s: Any) -> Any:
        nonlocal rows
        rows += len(at_s)
        return prepare(m, run, at_s)

    for module in (core_batch, stretches):
        monkeypatch.setattr(module, "prepare", counted)
    out = released(table, hereish.fixed_utility(PRIVACY, 3000), size=10_000)
    assert len(out) < 200
    assert 0 < rows < 5000, "400,000 if rows of a lane that has ended went through the step"


def test_every_trace_can_have_a_budget_of_its_own(chunks: Any) -> None:
    m = hereish.fixed_rate(PRIVACY, 5, window=EachTrace())
    table = people(6, 60)
    table = table.append_column("trip", pa.array(np.tile(np.repeat([1, 2, 3], 20), 6)))
    columns = ArrowColumns("user", "time", "lat", "lon", trace="trip")
    outs = []
    for rows in (16, 10**6):
        chunks(rows)
        outs.append(released(table, m, columns, size=11))
    assert outs[0].equals(outs[1])
    assert outs[0].column_names == ["user", "time", "trip", "lat", "lon", "kind", "cost"]
    spent = outs[0].to_pandas().groupby(["user", "trip"])["cost"].sum()
    assert len(spent) == 18
    assert (spent <= PRIVACY.eps_per_m).all()
    back = table.take(pa.array([*range(40, 60), *range(20)]))  # trips 3 and then 1 of one user
    with pytest.raises(PointError, match="sorted"):
        released(back, m, columns)
    with pytest.raises(ParameterError, match="column of the traces"):
        released(table, m)


def test_points_are_thinned_by_their_times(chunks: Any) -> None:
    m, table = MECHANISMS["whole day"], people(5, 400, 60)
    outs = []
    for rows in (37, 10**6):
        chunks(rows)
        counts = ArrowCounts()
        outs.append(released(table, m, size=13, every_s=1800.0, counts=counts))
        assert counts.thinned == len(table) - len(outs[-1])
    assert outs[0].equals(outs[1])
    gaps = outs[0].to_pandas().groupby("user")["time"].diff().dropna()
    assert gaps.min().total_seconds() >= 1800.0


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.take(pa.array([*range(30, 60), *range(30)])),  # users come back in time
        lambda t: t.take(pa.array([*range(60, 120), *range(60)])),  # users fall
        lambda t: pa.concat_tables([t, t]),  # all users a second time
    ],
)
@pytest.mark.parametrize("rows", [16, 10**6])
def test_rows_that_are_not_sorted_are_refused(chunks: Any, change: Any, rows: int) -> None:
    chunks(rows)
    with pytest.raises(PointError, match="must be sorted by user") as refused:
        released(change(people(2, 60)), MECHANISMS["whole day"], size=16)
    assert not any(digits in str(refused.value) for digits in ("60.", "25."))


@pytest.mark.parametrize("name", [" 7", "7.0", "+7", "e\N{ZERO WIDTH SPACE}", "a  b"])
def test_a_user_with_two_spellings_is_refused_and_can_be_mended(name: str) -> None:
    table = people(1, 20).set_column(0, "user", pa.array([name] * 20))
    m = MECHANISMS["whole day"]
    with pytest.raises(PointError, match="canonical_users"):
        released(table, m)
    mended = table.set_column(0, "user", canonical_users(table["user"]))
    assert len(released(mended, m)) == 20


def test_numbers_are_users_too() -> None:
    table = people(12, 20)
    numbers = table.set_column(0, "user", pa.array(np.repeat(np.arange(12), 20)))
    m = MECHANISMS["whole day"]
    out = released(numbers, m)
    frame = sanitize_frame(numbers, m, user="user", draws=KEY)
    assert out["lat"].to_pylist() == frame["lat"].to_pylist()


BAD: dict[str, tuple[int, Any, str]] = {
    "no user": (0, None, "no user"),
    "no time": (1, None, "no time"),
    "no latitude": (2, None, "latitude is missing"),
    "NaN": (3, math.nan, "longitude"),
    "off the globe": (2, 91.2345, "latitude is outside"),
    "swapped": (2, 125.4321, "swapped"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_point_is_refused_without_its_digits_or_left_out(name: str) -> None:
    column, value, reason = BAD[name]
    table = people(3, 20)
    cells = table.column(column).to_pylist()
    cells[30] = value
    changed = table.set_column(
        column, table.column_names[column], pa.array(cells, table.schema.field(column).type)
    )
    m = MECHANISMS["whole day"]
    with pytest.raises(PointError, match=reason) as refused:
        released(changed, m)
    assert not any(digits in str(refused.value) for digits in ("60.", "25.", "91.2", "125.4"))
    counts = ArrowCounts()
    out = released(changed, m, drop_bad=True, counts=counts)
    assert len(out) == 59
    assert sum(counts.bad.values()) == 1


def test_ties_are_broken_by_public_columns_then_by_a_keyed_hash(chunks: Any) -> None:
    rng = np.random.default_rng(1)
    count = 30
    table = pa.table(
        {
            "user": ["a"] * count,
            "time": times(np.repeat([0, 60_000_000], count // 2)),
            "lat": 60.0 + rng.normal(0.0, 0.02, count),
            "lon": 25.0 + rng.normal(0.0, 0.02, count),
            "number": np.tile(np.arange(count // 2), 2),
        }
    )
    shuffled = table.take(pa.array(np.r_[rng.permutation(15), 15 + rng.permutation(15)]))
    m = MECHANISMS["whole day"]
    for rows in (4, 10**6):
        chunks(rows)
        by_hash = [released(t, m, size=3) for t in (table, shuffled)]
        assert by_hash[0].equals(by_hash[1]), "the order of the input decides nothing"
        numbered = ArrowColumns("user", "time", "lat", "lon", order="number", keep=("number",))
        by_number = [released(t, m, numbered, size=3) for t in (table, shuffled)]
        assert by_number[0].equals(by_number[1])
        assert by_number[0]["number"].to_pylist() == list(range(15)) * 2


def test_rows_of_one_time_are_held_only_so_long(
    chunks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = people(1, 100).set_column(1, "time", times(np.zeros(100, dtype=np.int64)))
    chunks(10)
    assert len(released(table, MECHANISMS["whole day"])) == 100
    monkeypatch.setattr(arrow, "_MOST_AT_ONE_TIME", 50)
    with pytest.raises(PointError, match="same time"):
        released(table, MECHANISMS["whole day"], size=10)


def test_what_is_kept_has_nothing_of_refused_rows() -> None:
    table = people(2, 200, 60)
    notes = pa.array([f"note {i}" for i in range(400)]).dictionary_encode()
    table = table.append_column("note", notes)
    columns = ArrowColumns("user", "time", "lat", "lon", keep=("note",))
    out = released(table, hereish.fixed_rate(PRIVACY, 3), columns)
    assert 0 < len(out) < 20
    kept = out["note"].combine_chunks()
    assert sorted(kept.dictionary.to_pylist()) == sorted(set(kept.to_pylist()))
    frame = sanitize_frame(
        table, hereish.fixed_rate(PRIVACY, 3), user="user", draws=KEY, keep=["note"]
    )
    assert out["note"].to_pylist() == frame["note"].to_pylist()


def test_fresh_noise_is_refused_with_the_reason() -> None:
    for draws in (None, hereish.SecureDraws(), hereish.SeededDraws(1)):
        with pytest.raises(ParameterError, match="second release"):
            sanitize_batches([], MECHANISMS["whole day"], draws, COLUMNS)  # type: ignore[arg-type]


def test_columns_are_checked() -> None:
    table, m = people(2, 20), MECHANISMS["whole day"]
    for columns, words in (
        (ArrowColumns("who", "time", "lat", "lon"), "no column 'who'"),
        (ArrowColumns("lat", "time", "lon", "user"), "texts or whole numbers"),
        (ArrowColumns("user", "lat", "time", "lon"), "say their zone"),
    ):
        with pytest.raises(ParameterError, match=words):
            released(table, m, columns)
    with pytest.raises(ParameterError, match="must differ"):
        ArrowColumns("user", "time", "lat", "lat")
    with pytest.raises(ParameterError, match="'kind' and 'cost' are taken"):
        ArrowColumns("user", "time", "lat", "lon", keep=("cost",))
    naive = table.set_column(1, "time", table["time"].cast(pa.timestamp("us")))
    with pytest.raises(ParameterError, match="zone"):
        released(naive, m)
    with pytest.raises(ParameterError, match="metres east"):
        released(table, hereish.fixed_rate(PRIVACY, 5, space=hereish.Plane()))


def test_nothing_in_is_nothing_out() -> None:
    table = people(1, 20).slice(0, 0)
    assert len(released(table, MECHANISMS["whole day"])) == 0


def test_many_lanes_are_taken_in_several_turns(
    chunks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users with few reports each, whose runs take more room than their rows."""
    table, m = people(200, 9), MECHANISMS["whole day"]
    expected = released(table, m)
    for lanes, rows in ((7, 10**6), (50, 300), (1, 64)):
        monkeypatch.setattr(arrow, "MOST_LANES", lanes)
        chunks(rows)
        assert released(table, m, size=100).equals(expected)


def test_rows_that_differ_in_their_trace_alone_have_a_public_order() -> None:
    count = 12
    table = pa.table(
        {
            "user": ["a"] * count,
            "time": times(np.zeros(count, dtype=np.int64)),
            "lat": np.full(count, 60.0),
            "lon": np.full(count, 25.0),
            "trip": [f"t{i}" for i in range(count)],
        }
    )
    columns = ArrowColumns("user", "time", "lat", "lon", trace="trip")
    m = hereish.independent(PRIVACY, reports=20)
    back = table.take(pa.array(range(count - 1, -1, -1)))
    assert released(table, m, columns).equals(released(back, m, columns))


@pytest.mark.parametrize("every_s", [0.0, -5.0, math.nan, math.inf, 1e-9])
def test_points_are_taken_some_time_apart(every_s: float) -> None:
    with pytest.raises(ParameterError, match="apart"):
        released(people(1, 20), MECHANISMS["whole day"], every_s=every_s)


def test_places_do_not_order_and_traces_may_be_missing() -> None:
    with pytest.raises(ParameterError, match="public column"):
        ArrowColumns("user", "time", "lat", "lon", order="lat")
    table = people(1, 20).append_column("trip", pa.array([None, "a"] * 10))
    columns = ArrowColumns("user", "time", "lat", "lon", trace="trip")
    assert len(released(table, MECHANISMS["whole day"], columns)) == 20
    with pytest.raises(PointError, match="no trip"):
        released(table, hereish.fixed_rate(PRIVACY, 5, window=EachTrace()), columns)
    with pytest.raises(ParameterError, match="budget per trace"):
        released(
            people(1, 20), hereish.fixed_rate(PRIVACY, 5, window=EachTrace()), columns, every_s=60.0
        )


def test_what_has_failed_does_not_go_on() -> None:
    table = people(2, 20)
    sanitizer = arrow.BatchSanitizer(MECHANISMS["whole day"], KEY, COLUMNS)
    bad = table.set_column(2, "lat", pa.array(np.full(40, 95.0))).to_batches()[0]
    with pytest.raises(PointError):
        sanitizer.push(bad)
    for again in (sanitizer.finish, lambda: sanitizer.push(table.to_batches()[0])):
        with pytest.raises(ParameterError, match="begin anew"):
            again()
