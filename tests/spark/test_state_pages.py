"""The state of a stream: nobody is lost or mixed up as pages are split, and damage is noticed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hereish import Every, PlaceMemory, StateError, fixed_utility
from hereish.traces import arrow
from hereish.traces.key_file import read_key_file, write_key_file
from hereish.traces.standing import NEVER, Standing
from tests.support.spark_stream_stage import (
    COLUMNS,
    MECHANISMS,
    PRIVACY,
    cut_by_time,
    expected_rows,
    need_streams,
    people_points,
    points_table,
    table_rows,
)

need_streams()

from hereish.spark.state_pages import StandingRecords, StatePages, _Differences  # noqa: E402

HOUR_US = 3_600_000_000


class DictState:
    """A map state in memory, which counts how often it is asked."""

    def __init__(self) -> None:
        self.values: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.asked = 0

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:  # noqa: N802
        self.asked += 1
        return self.values.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:  # noqa: N802
        self.asked += 1
        self.values[key] = value


def _standing(records: StandingRecords, users: list[str], last_us: list[int]) -> Standing:
    empty = Standing.empty(records.lane_mechanism, len(users))
    times_us = np.array(last_us)
    windows = records.window.index(np.asarray(times_us * 1e-6, dtype=np.float64))
    assert windows is not None
    return Standing(windows.astype(object), times_us, empty.run)


def test_users_are_found_again_while_pages_are_split() -> None:
    mechanism = replace(MECHANISMS["fixed utility"], window=Every(timedelta(hours=1)))
    records, state = StandingRecords(mechanism), DictState()
    rng = np.random.default_rng(4)
    known: dict[str, int] = {}
    for turn in range(60):
        pages = StatePages(records, state)  # as in each micro-batch
        for chunk in range(2):  # and in each of its chunks
            chosen = rng.choice(2000, size=int(rng.integers(1, 200)), replace=False)
            users = sorted(f"user {number}, Jyväskylä" for number in chosen.tolist())
            standing = pages.load(users)
            assert standing.last_us.tolist() == [known.get(user, NEVER) for user in users]
            windows = [known[user] // HOUR_US if user in known else None for user in users]
            assert standing.lane.tolist() == windows
            some = users[::2]
            times_us = [(turn * 7 + chunk) * HOUR_US // 2 + i for i in range(len(some))]
            pages.save(some, _standing(records, some, times_us))
            known.update(zip(some, times_us, strict=True))
    everybody = sorted(known)
    before = state.asked
    pages = StatePages(records, state)
    assert pages.load(everybody).last_us.tolist() == [known[user] for user in everybody]
    written = b"".join(value for (value,) in state.values.values())
    assert written.count(b'"user ') == len(known)  # nobody is in two pages
    assert len(known) > 1000
    assert state.asked - before < len(known) / 16
    largest = max(len(value[0]) for value in state.values.values())
    assert largest < 200 * (8 * records.words + 40)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("every_s", [None, 1500.0])
def test_chunks_and_calls_give_the_bits_of_one(
    name: str, every_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = people_points(users=90, each=20)
    write_key_file(tmp_path / "key")
    expected = expected_rows(points, name, tmp_path / "key", every_s=every_s)
    monkeypatch.setattr(arrow, "CHUNK_ROWS", 50)
    records, state = StandingRecords(MECHANISMS[name]), DictState()
    released: list[pa.RecordBatch] = []
    counts = arrow.ArrowCounts()
    for piece in [*cut_by_time(points, 3), points]:  # at last all of them again, and late
        released += arrow.sanitize_batches(
            piece.sort_by([("user", "ascending"), ("time", "ascending")]).to_batches(),
            MECHANISMS[name],
            read_key_file(tmp_path / "key"),
            arrow.ArrowColumns(**COLUMNS),
            every_s=every_s,
            counts=counts,
            standings=StatePages(records, state),
        )
    assert table_rows([pa.Table.from_batches(released)]) == expected
    assert counts.late + counts.thinned == counts.points - counts.released - counts.refused
    assert counts.late >= points.num_rows - counts.thinned


@pytest.mark.parametrize("name", ["stops", "stops and carries over", "nested"])
@pytest.mark.parametrize("every_s", [None, 1500.0])
def test_budgets_that_end_give_the_bits_of_one_call(
    name: str, every_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = Every(timedelta(hours=9))
    monkeypatch.setitem(MECHANISMS, "stops", fixed_utility(PRIVACY, 700.0, window=window))
    remembers = fixed_utility(PRIVACY, 700.0, window=window, prediction=PlaceMemory())
    monkeypatch.setitem(MECHANISMS, "stops and carries over", remembers)
    mechanism, points = MECHANISMS[name], people_points(users=40, each=90)
    assert mechanism.on_exhausted == "stop"
    assert mechanism.carries_over == (name != "stops")
    write_key_file(tmp_path / "key")
    expected = expected_rows(points, name, tmp_path / "key", every_s=every_s)
    records, state, counts = StandingRecords(mechanism), DictState(), arrow.ArrowCounts()
    released: list[pa.RecordBatch] = []
    for piece in cut_by_time(points, 24):
        released += arrow.sanitize_batches(
            piece.sort_by([("user", "ascending"), ("time", "ascending")]).to_batches(),
            mechanism,
            read_key_file(tmp_path / "key"),
            arrow.ArrowColumns(**COLUMNS),
            every_s=every_s,
            counts=counts,
            standings=StatePages(records, state),
        )
    assert table_rows([pa.Table.from_batches(released)]) == expected
    assert counts.refused > 0  # or nothing was tried
    assert counts.points == counts.late + counts.thinned + counts.released + counts.refused


def test_who_has_no_budget_left_is_not_written_again(tmp_path: Path) -> None:
    mechanism = fixed_utility(PRIVACY, 500.0, window=Every(timedelta(hours=9)))
    write_key_file(tmp_path / "key")
    records, state = StandingRecords(mechanism), DictState()

    def released(times_us: list[int]) -> int:
        table = points_table(["ada"] * len(times_us), times_us, *np.full((2, len(times_us)), 60.0))
        batches = arrow.sanitize_batches(
            *(table.to_batches(), mechanism, read_key_file(tmp_path / "key")),
            arrow.ArrowColumns(**COLUMNS),
            standings=StatePages(records, state),
        )
        return sum(batch.num_rows for batch in batches)

    begin = 9 * HOUR_US * 1000
    first = released([begin + i * HOUR_US // 60 for i in range(1, 101)])
    assert 0 < first < 100
    before = dict(state.values)
    assert released([begin + 3 * HOUR_US, begin + 8 * HOUR_US]) == 0
    assert state.values == before
    assert released([begin + 2 * HOUR_US]) == 0  # late, though the state has no report after it
    assert released([begin + 9 * HOUR_US]) == 1  # a new budget
    assert released([begin + 8 * HOUR_US]) == 0
    assert state.values != before


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_was_not_written_for_this_mechanism_is_refused(name: str) -> None:
    mechanism, state = MECHANISMS[name], DictState()
    records = StandingRecords(mechanism)
    StatePages(records, state).save(["a"], _standing(records, ["a"], [5]))
    (written,) = state.values[(0,)]
    names = written.index(b'["a"]')
    no_names = written[:names] + b"!" + written[names + 1 :]
    other_mask = written[: names + 5] + bytes([written[names + 5] ^ 1]) + written[names + 6 :]
    for damaged in (b"", written[:-1], b"\x01" + written[1:], no_names, other_mask):
        state.values[(0,)] = (damaged,)
        with pytest.raises(StateError, match="damaged"):
            StatePages(records, state).load(["a"])
    state.values[(0,)] = (written,)
    other = StandingRecords(replace(mechanism, window=Every(timedelta(hours=1))))
    with pytest.raises(StateError, match="another mechanism"):
        StatePages(other, state).load(["a"])
    overspent = _standing(records, ["a"], [5])
    overspent.run.spent[:] = 2.0 * PRIVACY.eps_per_m
    StatePages(records, state).save(["a"], overspent)
    with pytest.raises(StateError, match="more than the budget"):
        StatePages(records, state).load(["a"])


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_window_that_is_not_that_of_the_last_report_is_refused(name: str, tmp_path: Path) -> None:
    mechanism, state = MECHANISMS[name], DictState()
    records = StandingRecords(mechanism)
    write_key_file(tmp_path / "key")
    points = people_points(users=3, each=20)
    released = arrow.sanitize_batches(
        points.sort_by([("user", "ascending"), ("time", "ascending")]).to_batches(),
        mechanism,
        read_key_file(tmp_path / "key"),
        arrow.ArrowColumns(**COLUMNS),
        standings=StatePages(records, state),
    )
    assert sum(batch.num_rows for batch in released)
    users = sorted(set(points["user"].to_pylist()))
    pages = StatePages(records, state)
    standing = pages.load(users)  # as it was written
    day_us = 24 * HOUR_US
    refused = {
        "does not lie in the window": [
            standing._replace(lane=standing.lane - 1),
            standing._replace(lane=standing.lane + 1),
            standing._replace(last_us=standing.last_us + day_us),
        ],
        "later than the last report": [standing._replace(last_us=standing.last_us - 3 * day_us)],
        "later than|years 1800": [standing._replace(last_us=np.full(len(users), NEVER))],
    }
    for match, changed in refused.items():
        for one in changed:
            pages.save(users, one)
            with pytest.raises(StateError, match=match):
                StatePages(records, state).load(users)
    pages.save(users, standing)
    assert StatePages(records, state).load(users).lane.tolist() == standing.lane.tolist()


def test_times_that_no_window_knows_are_refused() -> None:
    records, state = StandingRecords(MECHANISMS["whole day"]), DictState()
    standing = _standing(records, ["a"], [5])
    standing.last_us[:] = -9 * 10**16
    StatePages(records, state).save(["a"], standing)
    with pytest.raises(StateError, match="years 1800 to 2500"):
        StatePages(records, state).load(["a"])


def test_a_stream_goes_on_with_its_own_key_alone() -> None:
    records, state = StandingRecords(MECHANISMS["whole day"]), DictState()
    StatePages(records, state, b"one")
    StatePages(records, state, b"one")
    with pytest.raises(StateError, match="another key"):
        StatePages(records, state, b"another")


@pytest.mark.parametrize("users", [0, 1, 5])
def test_records_come_back_as_they_were_written(users: int) -> None:
    rng = np.random.default_rng(users)
    words = 16
    records = np.zeros((users, words), dtype="<u8")
    records[:, :6] = rng.integers(0, 1 << 63, (users, 6), dtype=np.uint64)  # of everybody
    records[:, 6] = 1 << 63
    records[:1, 8] = 7  # of one, with which the others are compared
    records[4:, 9] = 1 << 40  # of another
    written = _Differences.of(records).to_bytes(0, users)
    assert _Differences.read(written, users, words).tolist() == records.tolist()
    for damaged in (written[:-1], written + b"\0", written[:-20]):
        with pytest.raises(StateError, match="damaged"):
            _Differences.read(damaged, users, words)


@pytest.mark.parametrize("written", [b"", (5).to_bytes(8, "little"), b"\x02" + bytes(8)])
def test_a_bucket_that_another_version_has_written_is_refused(written: bytes) -> None:
    # Its users may be on other pages than here, and would seem to have spent nothing.
    records, state = StandingRecords(MECHANISMS["whole day"]), DictState()
    state.values[(-1,)] = (written,)
    with pytest.raises(StateError, match="another version"):
        StatePages(records, state)
