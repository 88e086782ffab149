"""A large file that processes share comes out as it does without them."""

from __future__ import annotations

import csv
import os
import signal
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hereish
from hereish.errors import PointError
from hereish.traces import parts
from hereish.traces.columns import Columns
from hereish.traces.discovery import find_sources
from hereish.traces.files import load_rows, sanitize_files
from hereish.traces.formats import _parquet_parts, _text_parts
from hereish.traces.summary import Summary
from tests.support.processes import children

# So large a budget that all points are released, next to where they were. Without a test: one in
# 2^24 passes however far off the guess is.
MECHANISM = hereish.independent(hereish.Privacy(level=1e9, radius_m=1.0), reports=10_000)
Row = tuple[Any, ...]


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Small files are worth dividing; whether each file was joined of its parts to the end."""
    monkeypatch.setattr(_text_parts, "WORTH_BYTES", 1)
    monkeypatch.setattr(_text_parts, "LEAST_BYTES", 4096)
    monkeypatch.setattr(_text_parts, "_LOOK_BYTES", 256)
    monkeypatch.setattr(_parquet_parts, "WORTH_ROWS", 1)
    monkeypatch.setattr(_parquet_parts, "LEAST_ROWS", 64)
    monkeypatch.setattr(_parquet_parts, "_LOOK_ROWS", 16)
    monkeypatch.setattr(parts, "_LEAST_UNIT", 100)
    monkeypatch.setattr(parts, "BATCH_ROWS", 200)
    # Threads that other tests have left behind are idle.
    monkeypatch.setattr(parts, "can_fork", lambda: True)
    seen: list[bool] = []
    finish = parts.JoinedParts.finish

    def noted(self: parts.JoinedParts) -> None:
        finish(self)
        seen.append(True)

    monkeypatch.setattr(parts.JoinedParts, "finish", noted)
    return seen


def made_rows(users: Sequence[str], each: int = 60) -> list[Row]:
    rng = np.random.default_rng(3)
    return [
        (
            user,
            f"trip {minute // 20}",
            f"2024-05-01T{8 + minute // 60:02}:{minute % 60:02}:00Z",
            round(rng.uniform(60, 61), 6),
            round(rng.uniform(24, 25), 6),
        )
        for user in users
        for minute in range(each)
    ]


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["user", "trip", "time", "lat", "lon"])
        out.writerows(rows)
    return path


def write_parquet(path: Path, rows: Sequence[Row]) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = dict(
        zip(["user", "trip", "time", "lat", "lon"], zip(*rows, strict=True), strict=True)
    )
    pq.write_table(pa.table({k: list(v) for k, v in columns.items()}), path, row_group_size=97)
    return path


WRITERS = {".csv": write_csv, ".parquet": write_parquet}


def both(path: Path, **options: bool) -> list[Summary]:
    """With one job and with three."""
    found = []
    for jobs in (1, 3):
        out = path.with_name(f"out{jobs}{path.suffix}")
        found.append(sanitize_files([path], out, MECHANISM, jobs=jobs, **options))  # type: ignore[arg-type]  # drop_bad
    return found


def assert_same(path: Path, summaries: Sequence[Summary]) -> None:
    one, three = (
        load_rows([str(path.with_name(f"out{jobs}{path.suffix}"))], Columns()) for jobs in (1, 3)
    )
    assert len(one) > 0
    assert one.users().values() == three.users().values()
    assert one.trace is not None
    assert three.trace is not None
    assert one.trace.values() == three.trace.values()
    assert (one.at_us == three.at_us).all()
    assert np.allclose(one.lat, three.lat, rtol=0, atol=1e-4)
    assert np.allclose(one.lon, three.lon, rtol=0, atol=1e-4)
    fields = ("files", "users", "traces", "points", "bad", "thinned", "refused", "released")
    first, second = ({name: getattr(s, name) for name in fields} for s in summaries)
    assert first == second


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize("names", ["sorted", "not sorted"])
def test_parts_are_joined_to_the_same_file(
    tmp_path: Path, joined: list[bool], ending: str, names: str
) -> None:
    users = [f"user {i:02}" for i in range(30)]
    if names == "not sorted":
        users = users[::2] + users[1::2]
    rows = made_rows(users)
    rows.insert(700, (*rows[700][:3], 91.5, 24.0))  # no place
    rows.insert(900, rows[900])  # twice
    path = WRITERS[ending](tmp_path / f"in{ending}", rows)
    assert_same(path, both(path, drop_bad=True))
    assert joined == [True]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_user_who_comes_back_has_one_budget(
    tmp_path: Path, joined: list[bool], ending: str
) -> None:
    users = [f"user {i:02}" for i in range(30)]
    rows = made_rows(users, 40)
    rows += [(name, "trip 9", f"2024-05-02{at[10:]}", *place) for name, _, at, *place in rows]
    path = WRITERS[ending](tmp_path / f"in{ending}", rows)
    assert_same(path, both(path))
    assert joined == []  # both halves have all users
    few = hereish.independent(hereish.Privacy(level=1e9, radius_m=1.0), reports=50)
    summary = sanitize_files([path], tmp_path / f"few{ending}", few, jobs=3)
    assert (summary.users, summary.released) == (30, 30 * 50)


def test_an_error_names_its_line_and_leaves_nothing(tmp_path: Path, joined: list[bool]) -> None:
    rows = made_rows([f"user {i:02}" for i in range(30)])
    rows[1500] = (*rows[1500][:2], "never", *rows[1500][3:])
    path = write_csv(tmp_path / "in.csv", rows)
    with pytest.raises(PointError, match="line 1502: it has no time"):
        sanitize_files([path], tmp_path / "out.csv", MECHANISM, jobs=3)
    assert [one.name for one in tmp_path.iterdir()] == ["in.csv"]
    assert joined == []


@pytest.mark.parametrize("odd", ["quotes", "latin", "offsets"])
def test_what_depends_on_lines_before_is_read_from_the_beginning(
    tmp_path: Path, joined: list[bool], odd: str
) -> None:
    rows = made_rows([f"user {i:02}" for i in range(30)])
    if odd == "quotes":  # lines within a field look like rows of other users
        inside = "\n".join(f"x{i // 40},t,2024-05-01T08:00:00Z,60,24" for i in range(400))
        rows = [
            (user, f"{trip}\n{inside}" if i % 100 == 0 else trip, *rest)
            for i, (user, trip, *rest) in enumerate(rows)
        ]
    if odd == "offsets":
        rows = [(u, t, at[:-1] if u < "user 20" else at, *place) for u, t, at, *place in rows]
    path = write_csv(tmp_path / "in.csv", rows)
    if odd == "latin":
        path.write_bytes(path.read_bytes().replace(b"user 25", b"us\xe9r 25"))
    assert_same(path, both(path, drop_bad=True))
    assert joined == []


def test_where_no_row_can_be_told_a_file_is_not_searched_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quote that is left open would make a line of text of each row, up to the end."""
    looked: list[bytes] = []
    look = _text_parts._Users._user

    def noted(self: Any, line: bytes) -> str | None:
        looked.append(line)
        return look(self, line)

    monkeypatch.setattr(_text_parts._Users, "_user", noted)
    monkeypatch.setattr(_text_parts, "WORTH_BYTES", 1)
    monkeypatch.setattr(_text_parts, "LEAST_BYTES", 4096)
    path = tmp_path / "in.csv"
    path.write_text("user,time,lat,lon\n" + ("text" * 50 + "\n") * 100_000)
    (source,) = find_sources([str(path)])
    table = _text_parts.TableText(head_lines=1, delimiter=",", user=0, width=4)
    assert _text_parts.divide_text(source, table, 2) == ()
    assert 0 < sum(map(len, looked)) < 2 << 20


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_parts_are_the_whole_file_and_cut_between_users(tmp_path: Path, ending: str) -> None:
    path = WRITERS[ending](tmp_path / f"in{ending}", made_rows([f"u{i}" for i in range(30)], 71))
    (source,) = find_sources([str(path)])
    assert source.format.divide is not None
    found = source.format.divide(source, Columns(), 2)
    assert len(found) > 3
    assert all(a.end == b.begin for a, b in pairwise(found))
    if ending == ".parquet":
        assert (found[0].begin, found[-1].end) == (0, 30 * 71)
        assert all(part.begin % 71 == 0 for part in found)
        return
    text = path.read_bytes()
    assert (found[0].begin, found[-1].end) == (found[0].head, len(text))
    for part in found[1:]:
        before, after = text[: part.begin].splitlines()[-1], text[part.begin :].splitlines()[0]
        assert before.split(b",")[0] != after.split(b",")[0]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_without_one_of_its_processes_a_file_is_read_as_a_whole(
    tmp_path: Path, joined: list[bool], monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    here, sanitize_units = os.getpid(), parts._sanitize_units

    def die(settings: Any, part: Any, unit_rows: int) -> Any:
        if os.getpid() != here and part.begin > 1000:
            os.kill(os.getpid(), signal.SIGKILL)
        return sanitize_units(settings, part, unit_rows)

    monkeypatch.setattr(parts, "_sanitize_units", die)
    path = WRITERS[ending](tmp_path / f"in{ending}", made_rows([f"u{i:02}" for i in range(40)]))
    assert_same(path, both(path))
    assert joined == []


def test_an_interrupt_does_not_wait_for_the_parts(
    tmp_path: Path, joined: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python ends once all processes have, which may work on their parts for minutes."""

    def endless(*_: Any) -> None:
        time.sleep(600)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(parts, "_sanitize_units", endless)  # in the processes, which are forks
    path = write_csv(tmp_path / "in.csv", made_rows([f"u{i:02}" for i in range(40)]))
    before = children()
    former = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            sanitize_files([path], tmp_path / "out.csv", MECHANISM, jobs=3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, former)
    assert children() <= before, "a process is left"
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
