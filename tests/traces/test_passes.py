"""Whether files are gone through again is decided by public data alone, before anything is drawn.

To throw a result away because of what was refused in it, and draw another, would tell about the
places twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hereish
from hereish.traces import files, pipeline, writing
from hereish.traces.columns import Columns

HEAD = "user,time,lat,lon\n"


def at(minute: int) -> str:
    return f"2026-05-05T12:{minute:02d}:00Z"


def written(folder: Path, degrees: float) -> list[str]:
    """Two files of a million rows, so to speak: the second goes on with a user of the first."""
    first = [f"a,{at(i)},{50 + i * degrees},8\n" for i in range(10)]
    first += [f"b,{at(i)},50,8\n" for i in range(2)]
    second = [f"a,{at(i)},{50 + i * degrees},8\n" for i in range(10, 14)] + [f"c,{at(20)},50,8\n"]
    for name, rows in (("1.csv", first), ("2.csv", second)):
        (folder / name).write_text(HEAD + "".join(rows))
    return [str(folder / "1.csv"), str(folder / "2.csv")]


def test_the_number_of_passes_does_not_depend_on_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    real = writing.open_output

    def counted(*given: Any, **named: Any) -> Any:
        begun.append(given)
        return real(*given, **named)

    monkeypatch.setattr(pipeline, "BATCH_ROWS", 12)
    monkeypatch.setattr(files, "open_output", counted)
    m = hereish.fixed_utility(hereish.Privacy(level=1.0, radius_m=200), accuracy_m=8000)
    passes, refused = set(), set()
    for degrees in (0.0, 0.02, 0.1, 0.5):
        names = written(tmp_path, degrees)
        for seed in range(15):
            begun.clear()
            summary = files.sanitize_files(names, str(tmp_path / "out.csv"), m, seed=seed)
            passes.add(len(begun))
            refused.add(summary.refused)
    assert len(refused) > 1, "the places have a say in what is refused"
    assert len(passes) == 1


def gpx(hour: int) -> str:
    points = "".join(
        f'<trkpt lat="50" lon="8"><time>2026-05-05T{hour}:0{i}:00Z</time></trkpt>' for i in range(2)
    )
    space = 'xmlns="http://www.topografix.com/GPX/1/1"'
    return f'<gpx version="1.1" creator="x" {space}><trk><trkseg>{points}</trkseg></trk></gpx>'


M = hereish.fixed_utility(hereish.Privacy(level=10.0, radius_m=100), accuracy_m=2000)


def test_a_file_for_each_user_does_not_tell_how_the_input_was_called(tmp_path: Path) -> None:
    seen = []
    for names in (("x", "y"), ("y", "x")):
        folder = tmp_path / "".join(names)
        folder.mkdir()
        for name, hour in zip(names, (12, 13), strict=True):
            (folder / f"{name}.gpx").write_text(gpx(hour))
        out = tmp_path / f"out {names[0]}"
        files.sanitize_files([str(folder)], str(out), M, split_by="user", to_form="csv")
        rows = (out / "user.csv").read_text().splitlines()
        seen.append([row.split(",")[:2] for row in rows])
    assert seen[0] == seen[1]
    assert seen[0][1:] == sorted(seen[0][1:])


@pytest.mark.parametrize("form", ["csv", "gpx", "geojson"])
def test_tracks_that_begin_at_one_time_stay_two(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "xy":
        (folder / f"{name}.gpx").write_text(gpx(12))
    out = tmp_path / "out"
    files.sanitize_files([str(folder)], str(out), M, split_by="user", to_form=form)
    [made] = [path for path in out.iterdir() if path.name.startswith("user")]
    batch = files.load_rows([str(made)], Columns())
    assert len(batch) == 4
    assert batch.trace is not None
    assert len(batch.trace.names) == 2


@pytest.mark.parametrize("repeats", [2, 3, 5])
@pytest.mark.parametrize("rows", [7, 10, 12])
def test_times_that_repeat_do_not_have_a_sorted_file_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, repeats: int
) -> None:
    """Wherever units end: each pass over a large file takes as long as all the rest."""
    lines = [
        f"{user},{at(minute)},{50 + minute / 100},8\n"
        for user in "abc"
        for minute in range(20)
        for _ in range(repeats)
    ]
    (tmp_path / "in.csv").write_text(HEAD + "".join(lines))
    m = hereish.fixed_utility(hereish.Privacy(level=1.0, radius_m=200), accuracy_m=8000)
    found = []
    for unit_rows in (1000, rows):
        monkeypatch.setattr(pipeline, "BATCH_ROWS", unit_rows)
        monkeypatch.setattr(files, "UNIT_ROWS", unit_rows)
        monkeypatch.setattr(files, "_MANY_ROWS", unit_rows)
        if unit_rows == rows:
            monkeypatch.setattr(files._Reading, "feed_by_user", None)  # it may not be called
        done = files.sanitize_files([tmp_path / "in.csv"], tmp_path / "out.csv", m)
        found.append((done.points, done.bad, done.users, done.released + done.refused))
    assert found[0] == found[1]
    assert found[0][3] == 60
