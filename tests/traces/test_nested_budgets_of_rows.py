"""Several budgets at once in tables: a user's windows go one after the other, and limits with them.

Frames, files, Arrow batches of any size and DuckDB give the same bits, and no limit is passed
however rows are cut into calls.
"""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import hereish
from hereish import Day, Days, Every, Forever, Hours
from hereish.traces import arrow, pipeline
from hereish.traces.arrow import ArrowColumns, sanitize_batches
from hereish.traces.budgets import Budgets, EachTrace
from hereish.traces.columns import Columns
from hereish.traces.files import sanitize_files
from hereish.traces.frames import sanitize_frame
from hereish.traces.job_budget import check_shared_budget
from hereish.traces.key_file import read_key_file, write_key_file
from hereish.traces.standing import Standing
from tests.traces.test_arrow import KEY, people

PRIVACY = hereish.Privacy(math.log(10), 100)
DAY = Day("Europe/Helsinki")
COLUMNS = ArrowColumns("user", "time", "lat", "lon")
LEVELS = {"30h": 0.8 * PRIVACY.level, "ever": 1.9 * PRIVACY.level}
NESTED = DAY & Hours(30).within(LEVELS["30h"]) & Forever.within(LEVELS["ever"])
MECHANISMS = {
    "whole day": hereish.whole_day(PRIVACY, window=NESTED),
    "fixed utility": hereish.fixed_utility(PRIVACY, 3000, window=NESTED),
    "the guess at the end": hereish.fixed_utility(
        PRIVACY, 3000, window=NESTED, on_exhausted="predict"
    ),
    "rolling alone": hereish.fixed_rate(PRIVACY, 30, window=Hours(20)),
    "hours": hereish.independent(
        PRIVACY, reports=3, window=Every(timedelta(hours=1)) & Hours(30).within(LEVELS["30h"])
    ),
}


def check_limits(out: pa.Table, m: hereish.PredictiveMechanism) -> None:
    """Adds the costs of every user up, in every window, exactly."""
    rows = out.to_pandas()
    for _, own in rows.groupby("user"):
        at_s = own["time"].astype("int64").to_numpy() / 1e6
        cost = [Fraction(one) for one in own["cost"]]
        for window, level in [(m.window, PRIVACY.level), *((o.window, o.level) for o in m.limits)]:
            assert level is not None
            if isinstance(window, hereish.Rolling):
                length_s = window.duration.total_seconds()
                groups = [(at_s <= end) & (at_s >= end - length_s) for end in at_s]
            else:
                index = window.index(at_s)
                number = np.zeros(len(at_s), dtype=np.int64) if index is None else index
                groups = [number == one for one in np.unique(number)]
            for group in groups:
                spent = sum((cost[i] for i in np.flatnonzero(group)), Fraction(0))
                assert spent <= Fraction(level / PRIVACY.radius_m), window


def of_frame(table: pa.Table, m: Any, **options: Any) -> pa.Table:
    out = sanitize_frame(table, m, user="user", draws=KEY, **options)
    return out.replace_schema_metadata(None).cast(COLUMNS.schema(table.schema))


def of_batches(batches: Any, m: Any, **options: Any) -> pa.Table:
    out = list(sanitize_batches(batches, m, KEY, COLUMNS, **options))
    return pa.Table.from_batches(out, schema=COLUMNS.schema(people(1, 1).schema))


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(("size", "rows"), [(7, 64), (1000, 10**6)])
def test_arrow_batches_of_any_size_have_the_bits_of_a_frame(
    name: str, size: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    m, table = MECHANISMS[name], people(20, 60)
    monkeypatch.setattr(arrow, "CHUNK_ROWS", rows)
    whole = of_frame(table, m)
    assert 0 < len(whole) <= len(table)
    check_limits(whole, m)
    assert of_batches(table.to_batches(max_chunksize=size), m).equals(whole)


class Kept:
    """Where users stand from one call to the next."""

    def __init__(self, m: hereish.PredictiveMechanism) -> None:
        self.m = m.without_windows
        self.users: dict[str, Standing] = {}

    def load(self, users: Any) -> Standing:
        standing = Standing.empty(self.m, len(users))
        for i, user in enumerate(users):
            if user in self.users:
                standing.put(np.array([i]), self.users[user])
        return standing

    def save(self, users: Any, standing: Standing) -> None:
        for i, user in enumerate(users):
            self.users[user] = standing.take(np.array([i]))


def distinct_times(table: pa.Table) -> pa.Table:
    """Without rows of one user at one time, of which a second call would drop those that follow."""
    rows = table.to_pandas().drop_duplicates(["user", "time"])
    return pa.Table.from_pandas(rows, schema=table.schema, preserve_index=False)


def by_time(table: pa.Table, parts: int) -> list[pa.Table]:
    """Pieces of time, each sorted by user and time."""
    at_us = table["time"].cast(pa.int64()).to_numpy()
    edges = np.quantile(at_us, np.linspace(0.0, 1.0, parts + 1))
    edges[-1] += 1
    pieces = [(at_us >= a) & (at_us < b) for a, b in pairwise(edges)]
    return [table.filter(pa.array(piece)) for piece in pieces]


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("parts", [2, 13])
def test_calls_one_after_the_other_have_the_bits_of_one(name: str, parts: int) -> None:
    m, table = MECHANISMS[name], distinct_times(people(20, 60))
    whole = of_frame(table, m).sort_by([("user", "ascending"), ("time", "ascending")])
    budgets, standings = Budgets(m), Kept(m)
    pieces = by_time(table, parts)
    frames = pa.concat_tables(of_frame(piece, m, budgets=budgets) for piece in pieces)
    assert frames.sort_by([("user", "ascending"), ("time", "ascending")]).equals(whole)
    streamed = [of_batches(one.to_batches(), m, standings=standings) for one in pieces]
    together = pa.concat_tables(streamed)
    assert together.sort_by([("user", "ascending"), ("time", "ascending")]).equals(whole)


def test_a_session_is_refused_where_rows_are() -> None:
    """Costs that do not depend on draws: the same reports fit, live and in a table."""
    m = hereish.independent(PRIVACY, reports=6, window=NESTED)
    table = distinct_times(people(3, 80))
    out = of_frame(table, m).to_pandas()
    for user, own in table.to_pandas().groupby("user"):
        session, made = m.session(seed=1), []
        for row in own.itertuples():
            try:
                session.report((row.lat, row.lon), row.time.to_pydatetime())
            except hereish.BudgetExhaustedError:
                continue
            made.append(row.time)
        assert made == out[out["user"] == user]["time"].tolist()


def test_rows_before_those_of_an_earlier_call_are_refused() -> None:
    m = MECHANISMS["fixed utility"]
    early, late = by_time(distinct_times(people(4, 60)), 2)
    budgets = Budgets(m)
    of_frame(late, m, budgets=budgets)
    with pytest.raises(hereish.PointError, match="its user has a later report"):
        of_frame(early, m, budgets=budgets)


def test_duckdb_has_the_bits_of_a_frame(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb: pip install 'hereish[duckdb]'")
    from hereish.traces.duckdb import sanitize_relation

    write_key_file(tmp_path / "key")
    m, table = MECHANISMS["whole day"], people(10, 60)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    relation = con.from_arrow(
        table.take(pa.array(np.random.default_rng(1).permutation(len(table))))
    )
    names: dict[str, Any] = {"user": "user", "time": "time", "lat": "lat", "lon": "lon"}
    out = sanitize_relation(relation, m, **names, key_file=tmp_path / "key").read_all()
    keyed = list(sanitize_batches(table.to_batches(), m, read_key_file(tmp_path / "key"), COLUMNS))
    expected = pa.Table.from_batches(keyed)
    assert out.cast(expected.schema).equals(expected)


def test_files_in_pieces_of_any_size_keep_every_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = hereish.independent(PRIVACY, reports=6, window=NESTED)
    table = distinct_times(people(8, 60))
    for number, piece in enumerate(by_time(table, 3)):
        pyarrow.csv.write_csv(piece, tmp_path / f"{number}.csv")
    expected = of_frame(table, m).drop_columns(["lat", "lon"])
    for rows in (100, 10**6):
        monkeypatch.setattr(pipeline, "BATCH_ROWS", rows)
        to = tmp_path / f"out {rows}.csv"
        columns = Columns(user="user")
        summary = sanitize_files([str(tmp_path / "[0-9].csv")], str(to), m, columns=columns)
        assert "for the reports of any 30 hours, at most" in summary.guarantee
        out = pyarrow.csv.read_csv(to).select(expected.column_names).cast(expected.schema)
        assert out.sort_by([("user", "ascending"), ("time", "ascending")]).equals(expected)


def test_limits_are_of_windows_of_time_and_not_of_traces_or_jobs() -> None:
    m = hereish.independent(PRIVACY, reports=6, window=EachTrace() & Days(30).within(9.0))
    with pytest.raises(hereish.ParameterError, match="windows of time, and one per trace is none"):
        of_frame(people(1, 3), m)
    with pytest.raises(hereish.ParameterError, match="a job has a budget for one window"):
        check_shared_budget(MECHANISMS["whole day"])
