"""The state of a stream: nobody is lost or mixed up as pages are split, and damage is noticed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hereish import Every, StateError
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
    table_rows,
)

need_streams()

from hereish.spark.state_pages import StandingRecords, StatePages  # noqa: E402


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
    windows = np.array([at_us // 1000 - 5 for at_us in last_us], dtype=object)
    return Standing(windows, np.array(last_us), empty.run)


def test_users_are_found_again_while_pages_are_split() -> None:
    records, state = StandingRecords(MECHANISMS["whole day"]), DictState()
    rng = np.random.default_rng(4)
    known: dict[str, int] = {}
    for turn in range(60):
        pages = StatePages(records, state)  # as in each micro-batch
        for chunk in range(2):  # and in each of its chunks
            chosen = rng.choice(2000, size=int(rng.integers(1, 200)), replace=False)
            users = sorted(f"user {number}, Jyväskylä" for number in chosen.tolist())
            standing = pages.load(users)
            assert standing.last_us.tolist() == [known.get(user, NEVER) for user in users]
            windows = [known[user] // 1000 - 5 if user in known else None for user in users]
            assert standing.lane.tolist() == windows
            some = users[::2]
            times_us = [turn * 7919 + chunk * 1000 + i for i in range(len(some))]
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


def test_a_stream_goes_on_with_its_own_key_alone() -> None:
    records, state = StandingRecords(MECHANISMS["whole day"]), DictState()
    StatePages(records, state, b"one")
    StatePages(records, state, b"one")
    with pytest.raises(StateError, match="another key"):
        StatePages(records, state, b"another")
