"""Neither the key nor a true place is in what Spark writes and says, with its encryption on.

Event log, web pages and REST, logs of driver and executors, shuffle and spill.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import pickle
from collections.abc import Collection, Iterable
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.traces.displacement import Displacements
from hereish.traces.key_file import unseal, write_key_file
from tests.support.leaks import TRUE, Place, leaks, spellings
from tests.support.spark import need_spark
from tests.support.spark_programs import finish, start
from tests.traces.test_arrow import times

KEY = hashlib.sha256(b"a marker key, which is looked for").digest()
# What the draws make of it: whoever has this does not need the key.
DERIVED = hashlib.blake2b(KEY, digest_size=32, person=b"hereish draws 2").digest()
USERS, REPORTS, STEP_S = 10, 800, 60
# Rows are so long that sockets do not hold all of them: some are spilt while a task runs.
NOTE = 1000 * "x"
LONG = 1_000_000
BAD = Place(97.3819264, 163.7419258)


def stays(lat: float = TRUE.lat) -> pa.Table:
    """Everybody is at the one true place."""
    rows = USERS * REPORTS
    return pa.table(
        {
            "user": np.repeat([f"user {i:02}" for i in range(USERS)], REPORTS),
            "time": times(np.tile(np.arange(REPORTS) * STEP_S, USERS) * 1_000_000),
            "lat": np.full(rows, lat),
            "lon": np.full(rows, TRUE.lon),
            "note": pa.array([NOTE] * rows),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark wrote and said, with encryption and in the control."""
    need_spark()
    made = tmp_path_factory.mktemp("leaks")
    (made / "key").write_bytes(base64.b64encode(KEY))
    (made / "key").chmod(0o600)
    table = stays()
    pq.write_table(table, made / "good.parquet")
    pq.write_table(pa.concat_tables([table, stays(BAD.lat).slice(0, 1)]), made / "bad.parquet")
    texts = pa.array([f"{TRUE.lat}" if i != 5 else f"x{TRUE.lat}" for i in range(len(table))])
    pq.write_table(table.set_column(2, "lat", texts), made / "garbled.parquet")
    logs = {case: made / f"{case}-driver" for case in ("real", "control")}
    running = {case: start("spark_leaks", log, str(made), case) for case, log in logs.items()}
    for case, process in running.items():
        finish(process, logs[case])
    return made


def searched(folder: Path, case: str) -> dict[str, bytes]:
    """All that is to be searched, by where it was."""
    found = folder / case
    files = {str(path.relative_to(found)): path for path in found.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items()} | {
        "driver": (folder / f"{case}-driver").read_bytes()
    }


def spelt_in(content: bytes, released: Collection[float], place: Place) -> list[str]:
    """How a place is spelt in there. Files of rows are long, and numbers in them are not texts."""
    if len(content) < LONG:
        return leaks(content, released, place)
    texts = {
        f"{axis}, digits": f"{true:.7f}"[:-4].encode() for axis, true in place._asdict().items()
    }
    return [name for name, form in (spellings(place) | texts).items() if form in content]


def places_in(folder: Path, case: str) -> dict[str, list[str]]:
    """Where a true place is. What was released may be near it."""
    table = pq.read_table(folder / f"{case}-out")
    released = {*table["lat"].to_pylist(), *table["lon"].to_pylist()}
    found = {
        name: [how for place in (TRUE, BAD) for how in spelt_in(content, released, place)]
        for name, content in searched(folder, case).items()
    }
    return {name: how for name, how in found.items() if how}


def key_in(folder: Path, case: str) -> set[str]:
    """Where the key is, or what the draws make of it."""
    spelt = {
        form for key in (KEY, DERIVED) for form in (key, key.hex().encode(), base64.b64encode(key))
    }
    return {
        name
        for name, content in searched(folder, case).items()
        if any(form in content for form in spelt)
    }


PARTS = {
    "event log": "events/*/events_*",
    "web": "web/*",
    "driver": "driver",
    "executor": "executors/*/stderr",
    "shuffle": "*/shuffle_*.data",
    "spill": "spilt/*/temp_local_*",
    "failure": "*-failure",
}


def parts(names: Iterable[str]) -> set[str]:
    """Which of Spark's writings files are of."""
    return {part for name in names for part, glob in PARTS.items() if fnmatch(name, glob)}


def test_nothing_of_the_key_and_of_true_places_is_found(folder: Path) -> None:
    contents = searched(folder, "real")
    assert parts(name for name, content in contents.items() if content) == PARTS.keys()
    assert places_in(folder, "real") == {}
    assert key_in(folder, "real") == set()


def test_the_search_finds_what_is_there(folder: Path) -> None:
    """The control: without encryption, and with the key in a setting."""
    assert parts(places_in(folder, "control")) == {"shuffle", "spill"}
    assert parts(key_in(folder, "control")) == {"event log", "web"}


def test_a_bad_point_is_told_everywhere_without_its_digits(folder: Path) -> None:
    """That its digits are nowhere is shown above; here, that they would have been there."""
    contents = searched(folder, "real")
    reason = b"a point cannot be used: its latitude is"
    told = parts(name for name, content in contents.items() if reason in content)
    assert told == {"event log", "web", "driver", "executor", "failure"}
    for name, rest in (("bad", b"outside -90 to 90"), ("garbled", b"missing or not a number")):
        assert reason + b" " + rest in contents[f"{name}-failure"]


def test_how_far_off_reports_are_is_sealed_on_its_way(folder: Path, tmp_path: Path) -> None:
    """It is computed from true places."""
    mean_m = json.loads((folder / "real-summary.json").read_text())["displacement_mean_m"]
    table = pq.read_table(folder / "real-counted.parquet")
    public = np.column_stack([table["lat"].to_numpy(), table["lon"].to_numpy()])
    true = np.broadcast_to([TRUE.lat, TRUE.lon], public.shape)
    assert mean_m == pytest.approx(hereish.Sphere().distance(true, public).mean())
    write_key_file(tmp_path / "other")
    counted, clear = Displacements(), []
    for sealed in [path.read_bytes() for path in (folder / "real-received").iterdir()]:
        assert unseal(tmp_path / "other", sealed) is None
        opened = unseal(folder / "key", sealed)
        assert opened is not None
        counted.include(Displacements.from_bytes(opened))
        clear += [opened, base64.b64encode(opened), opened[:8]]
        assert not any(form in sealed for form in clear)
    assert counted.mean_m == pytest.approx(mean_m)
    clear += [f"{mean_m:.9f}"[:9].encode()]
    found = searched(folder, "real")
    assert not [name for name, content in found.items() if any(form in content for form in clear)]


def test_keyed_draws_are_not_pickled() -> None:
    """Else a task that holds them takes the key to all disks."""
    draws = hereish.KeyedDraws(KEY)
    for pickled in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret key") as refused:
            pickled(draws)
        assert KEY.hex() not in str(refused.value)
