"""A replay is not a second release: lost executors, speculative tasks, inputs that changed.

What is compared is all that any attempt handed over, and not only what Spark kept of it.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hereish.traces.arrow import sanitize_batches
from hereish.traces.arrow_rows import ArrowColumns
from hereish.traces.key_file import read_key_file
from tests.support.spark import need_spark
from tests.support.spark_attempts import PRIVACY, WHOLE_DAY, recorded
from tests.support.spark_programs import finish, start
from tests.traces.test_arrow import MIDNIGHT_US, times

need_spark()
COLUMNS = ArrowColumns("user", "time", "lat", "lon")
KEY = b"a key of replays, of 32 bytes..."
USERS, REPORTS, STEP_S = 16, 60, 600

Moment: TypeAlias = tuple[str, int]  # who and when
Released: TypeAlias = tuple[float, float, str, float]  # where, kind and cost


def travels(seed: int = 1) -> pa.Table:
    """Each report far from the one before, and no two of a user at one time."""
    rng = np.random.default_rng(seed)
    at_s = np.tile(np.arange(REPORTS) * STEP_S, USERS)
    return pa.table(
        {
            "user": np.repeat([f"user {i:02}" for i in range(USERS)], REPORTS),
            "time": times(at_s * 1_000_000),
            "lat": rng.uniform(55.0, 65.0, USERS * REPORTS),
            "lon": rng.uniform(15.0, 35.0, USERS * REPORTS),
        }
    )


CHANGED = {"user 03": 7, "user 05": 0}
REMOVED = {"user 08": 11}


def changed(table: pa.Table) -> pa.Table:
    """Some user's report is at another place, and another's is missing."""
    lat = table["lat"].to_numpy().copy()
    for user, report in CHANGED.items():
        lat[int(user[-2:]) * REPORTS + report] += 1e-4
    moved = table.set_column(2, "lat", pa.array(lat))
    gone = [int(user[-2:]) * REPORTS + report for user, report in REMOVED.items()]
    return moved.take(pa.array(np.delete(np.arange(len(table)), gone)))


def places(table: pa.Table) -> dict[Moment, Released]:
    """What was released, of which there is one per user and time."""
    at_us = table["time"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    columns = [table[name].to_pylist() for name in ("lat", "lon", "kind", "cost")]
    moments = zip(table["user"].to_pylist(), at_us, strict=True)
    out = dict(zip(moments, zip(*columns, strict=True), strict=True))
    assert len(out) == len(table), "a user has several rows at one time"
    return out


def by_one_process(folder: Path) -> dict[Moment, Released]:
    table = pq.read_table(folder / "before.parquet")
    draws = read_key_file(folder / "key")
    return places(
        pa.Table.from_batches(sanitize_batches(table.to_batches(), WHOLE_DAY, draws, COLUMNS))
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All jobs, and what became of them."""
    made = tmp_path_factory.mktemp("replays")
    key = made / "key"
    key.write_bytes(base64.b64encode(KEY))
    key.chmod(0o600)
    table = travels()
    pq.write_table(table, made / "before.parquet")
    pq.write_table(changed(table), made / "after.parquet")
    finish(start("spark_replays", made / "log", str(made)), made / "log")
    return made


def doubles(folder: Path, name: str) -> tuple[int, int]:
    """Of all that was ever handed over: moments of several attempts, and those with two places."""
    attempts: Counter[Moment] = Counter()
    released: defaultdict[Moment, set[Released]] = defaultdict(set)
    for table in recorded(folder / f"{name}-attempts").values():
        attempts.update(places(table).keys())
        for moment, where in places(table).items():
            released[moment].add(where)
    for moment, where in places(pq.read_table(folder / name)).items():
        released[moment].add(where)
    several = sum(count > 1 for count in attempts.values())
    return several, sum(len(different) > 1 for different in released.values())


HAPPENS = {"killed": "killed", "speculated": "waited"}


@pytest.mark.parametrize("name", HAPPENS)
def test_tasks_that_run_again_release_the_same_bits(folder: Path, name: str) -> None:
    """An executor is killed in the middle of a task; a slow task is overtaken by a copy."""
    happened = {path.name for path in (folder / f"{name}-attempts").iterdir()}
    assert happened & {"killed", "waited", "waited in vain"} == {HAPPENS[name]}
    again, two_places = doubles(folder, name)
    assert again > 0, "no task ran twice, so nothing is shown"
    assert two_places == 0
    assert places(pq.read_table(folder / name)) == by_one_process(folder)


@pytest.mark.parametrize("name", ["killed-fresh", "speculated-fresh"])
def test_fresh_noise_would_give_two_places(folder: Path, name: str) -> None:
    """The control: each attempt has a key of its own."""
    again, two_places = doubles(folder, name)
    assert 0 < two_places <= again


def test_of_an_input_that_changed_an_unchanged_prefix_is_the_same(folder: Path) -> None:
    """What follows is another release, which the same person pays for a second time."""
    before, after = (places(pq.read_table(folder / f"{name}-out")) for name in ("before", "after"))
    assert {kind for _, _, kind, _ in (before | after).values()} == {"hard"}
    touched = CHANGED | REMOVED
    for user in {user for user, _ in before}:
        first, second = (
            {at: where for (owner, at), where in out.items() if owner == user}
            for out in (before, after)
        )
        spent = [math.fsum(cost for *_, cost in out.values()) for out in (first, second)]
        assert max(spent) <= PRIVACY.eps_per_m
        if user not in touched:
            assert first == second
            continue
        changed_at = MIDNIGHT_US + touched[user] * STEP_S * 1_000_000
        both = first.keys() & second.keys()
        same = {at for at in both if first[at] == second[at]}
        assert same == {at for at in first if at < changed_at}
        assert len(same) == touched[user]
        other = both - same
        assert len(other) > 10
        assert all(first[at][i] != second[at][i] for at in other for i in (0, 1))
        paid = math.fsum(cost for *_, cost in {*first.values(), *second.values()})
        assert PRIVACY.eps_per_m < paid <= 2 * PRIVACY.eps_per_m
