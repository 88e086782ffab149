"""The search for the true place: it finds every spelling of it, and nothing that was released."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hostile_stage import Hostile, hostile
from tests.support.leaks import TRUE, Place, leaks, leaks_in_files, released_in, spellings

DIGITS = [
    *(f"{value:.{digits}f}" for value in TRUE for digits in range(3, 10)),
    *(str(int(value * 1000) / 1000) for value in TRUE),  # cut, not rounded
    f"{TRUE.lon},{TRUE.lat}",
    f"[{TRUE.lon:.4f}, {TRUE.lat:.4f}]",
    f"1,{TRUE.lon:.3f}",
    f"lat%3D{TRUE.lat}",
    f"-{TRUE.lat}",
    str(TRUE.lat).replace(".", ","),
    *(str(round(value * scale)) for value in TRUE for scale in (10**6, 10**7)),
    f"{TRUE.lat:.9e}",
    TRUE.lat.hex(),
]
# What stands in logs and ledgers anyway: times, release-like neighbours, two decimals.
INNOCENT = [
    f"{TRUE.lat:.2f} {TRUE.lon:.1f}",
    "2026-11-16T01:57:07.381+00:00 1794794267.3819264 16:37:41.9258",
    f"{TRUE.lat + 2e-5:.5f},{TRUE.lon - 2e-5:.5f}",
    f'"ms": {TRUE.lat:.1f}, "entries": 673819, "resend": "0673819264a"',
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    with hostile(tmp_path_factory.mktemp("leaks")) as stage:
        for _ in range(5):
            assert stage.report().status_code == 200
        yield stage


@pytest.mark.parametrize("spelled", DIGITS)
def test_a_place_in_digits_is_found_in_a_log(spelled: str, stage: Hostile) -> None:
    log = stage.running.log.read_bytes()
    planted = json.dumps({"event": "request", "words": f"at {spelled}!"}).encode()
    assert leaks(log) == []
    assert leaks(log + planted + b"\n" + log)


@pytest.mark.parametrize("name", spellings())
def test_a_place_in_bytes_is_found_in_the_middle_of_others(name: str) -> None:
    assert leaks(b"\x01\x02" + spellings()[name] + b"\xfe")


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_not_the_place_is_not_found(text: str) -> None:
    assert leaks(text.encode()) == []


def test_a_release_with_the_digits_of_the_truth_is_no_leak() -> None:
    chance = round(TRUE.lat, 5)
    assert leaks(str(chance).encode(), released={chance}) == []
    assert leaks(str(chance).encode(), released={chance + 1e-5})
    assert leaks(str(TRUE.lat).encode(), released={chance})
    assert leaks(spellings()["lat, float64 big endian, rounded to 5"], released={chance}) == []


@pytest.mark.parametrize(
    ("types", "row"),
    [
        ("REAL", (TRUE.lat, 1)),
        ("REAL", (round(TRUE.lon, 4), 1)),
        ("TEXT", (f"{TRUE.lat:.3f}", "")),
        ("BLOB", (str(TRUE.lon).encode(), b"")),
        ("INTEGER", tuple(round(value * 1e7) for value in TRUE)),
        ("INTEGER", tuple(round(value * 1e6) for value in reversed(TRUE))),
    ],
)
def test_a_place_in_a_table_is_found_in_the_file_and_in_its_log(
    types: str, row: tuple[object, object], stage: Hostile, tmp_path: Path
) -> None:
    copy = tmp_path / "ledger.db"
    source, target = sqlite3.connect(stage.folder / "ledger.db"), sqlite3.connect(copy)
    source.backup(target)
    source.close()
    released = released_in(copy)
    assert released
    assert leaks_in_files(tmp_path, released) == {}
    target.execute("PRAGMA journal_mode = WAL")
    target.execute(f"CREATE TABLE planted (a {types}, b {types})")
    target.execute("INSERT INTO planted VALUES (?, ?)", row)
    target.commit()
    assert list(leaks_in_files(tmp_path, released)) == ["ledger.db-wal"]
    target.close()
    assert list(leaks_in_files(tmp_path, released)) == ["ledger.db"]


def test_the_search_looks_where_releases_are(stage: Hostile) -> None:
    """If the released place were the true one, it would be found in the ledger and the answer."""
    answer = stage.report()
    release = Place(**{axis: answer.json()[axis] for axis in Place._fields})
    found = leaks_in_files(stage.folder, (), release)
    assert {name.removesuffix("-wal") for name in found} == {"ledger.db"}
    assert leaks(b"\n".join(stage.heard), (), release)
