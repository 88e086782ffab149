"""However many jobs there are, the same comes out, and an error leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hereish
from hereish.errors import PointError
from hereish.traces import pipeline
from hereish.traces.behind import Behind
from hereish.traces.files import sanitize_files
from hereish.traces.formats import _text

PRIVACY = hereish.Privacy(level=10.0, radius_m=500)


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "BATCH_ROWS", 100)
    monkeypatch.setattr(_text, "BATCH_ROWS", 64)
    monkeypatch.setattr(_text, "BLOCK_ROWS", 32)


def written(folder: Path, *, by_user: bool, ties: bool) -> Path:
    """A table of many units: one user after the other, or all of them at all times."""
    rng = np.random.default_rng(3)
    users, times = np.repeat(np.arange(20), 60), np.tile(np.arange(60), 20)
    order = np.lexsort((times, users)) if by_user else np.lexsort((users, times))
    lines = ["user,trip,time,lat,lon"]
    for user, minute in zip(users[order].tolist(), times[order].tolist(), strict=True):
        at = f"2024-05-01T08:{minute:02}:00Z"
        row = f"u{user},{minute // 30},{at},{rng.uniform(60, 61):.6f},{rng.uniform(24, 25):.6f}"
        lines += [row, row] if ties and minute % 7 == 0 else [row]
    path = folder / f"in-{by_user}-{ties}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.usefixtures("small_units")
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("by_user", [False, True])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_seed_gives_the_same_bits_with_any_number_of_jobs(
    tmp_path: Path, by_user: bool, ties: bool, ending: str
) -> None:
    path = written(tmp_path, by_user=by_user, ties=ties)
    mechanism = hereish.fixed_utility(PRIVACY, accuracy_m=3000)
    outputs = []
    for jobs in (1, 2, 3):
        out = tmp_path / f"out{jobs}{ending}"
        sanitize_files([path], out, mechanism, seed=7, jobs=jobs)
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.usefixtures("small_units")
def test_an_error_of_a_later_unit_leaves_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, by_user=True, ties=False)
    path.write_text(path.read_text() + "u99,0,never,60,24\n")
    mechanism = hereish.fixed_utility(PRIVACY, accuracy_m=3000)
    with pytest.raises(PointError, match="no time"):
        sanitize_files([path], tmp_path / "out.csv", mechanism, jobs=2)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_what_fails_behind_is_raised_once() -> None:
    behind = Behind()

    def fail() -> None:
        raise PointError("here")

    behind.run(fail)
    with pytest.raises(PointError, match="here"):
        behind.wait()
    behind.wait()
    behind.run(fail)
    with pytest.raises(PointError, match="here"):
        behind.close()
