"""Nothing is lost by following advice: order, repeated times, --drop-bad, hints and names."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.cli._sanitize_summary import summarise
from hereish.errors import ParameterError, PointError
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.files import sanitize_files
from hereish.traces.validate import DropBad
from tests.support.permuted_traces import small_units

PRIVACY = hereish.Privacy(math.log(10), 100)
M = hereish.fixed_utility(PRIVACY, 3000, window=hereish.Day("UTC"), on_exhausted="predict")
NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)
REPEATED = FAULT_REASONS[Fault.TWICE]


def write(path: Path, header: str, rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(header.split(","))
        out.writerows(rows)
    return path


def at(minute: float) -> str:
    return (NOON + timedelta(minutes=minute)).isoformat()


def released(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("units", [3, 1000])
@pytest.mark.parametrize("drop_bad", [False, True])
def test_an_export_with_the_newest_first_loses_no_row(
    tmp_path: Path, units: int, drop_bad: bool
) -> None:
    rows = [("ann", at(-i), 60.0, 25.0) for i in range(416)]
    source = write(tmp_path / "in.csv", "user,time,lat,lon", rows)
    with small_units(units):
        summary = sanitize_files([source], tmp_path / "out.csv", M, drop_bad=drop_bad)
    assert (summary.points, summary.released, summary.bad) == (416, 416, {})
    times = [row["time"] for row in released(tmp_path / "out.csv")]
    assert times == sorted(times)


def test_repeated_times_are_left_out_and_counted_without_being_asked_for(tmp_path: Path) -> None:
    rows = [("ann", at(i // 2), 60.0, 25.0) for i in range(10)]
    source = write(tmp_path / "in.csv", "user,time,lat,lon", rows)
    summary = sanitize_files([source], tmp_path / "out.csv", M)
    assert (summary.released, summary.bad) == (5, {REPEATED: 5})
    # In a GPX file too, where a second holds several points.
    points = "".join(
        f'<trkpt lat="60" lon="25"><time>{at(i // 2)}</time></trkpt>' for i in range(10)
    )
    track = tmp_path / "in.gpx"
    track.write_text(f"<gpx><trk><trkseg>{points}</trkseg></trk></gpx>")
    summary = sanitize_files([track], tmp_path / "out.gpx", M)
    assert (summary.released, summary.bad) == (5, {REPEATED: 5})


def test_which_of_two_rows_of_one_time_stays_is_chance(tmp_path: Path) -> None:
    """Not the first, nor by place. Two-sided, n = 120, alpha = 1e-6: outside is 1/2 +- 0.22."""
    near = hereish.independent(hereish.Privacy(math.log(10), 1), reports=1)
    rows = [("ann", at(0), 10.0, 25.0), ("ann", at(0), 60.0, 25.0)]
    source = write(tmp_path / "in.csv", "user,time,lat,lon", rows)
    south = 0
    for _ in range(120):
        sanitize_files([source], tmp_path / "out.csv", near)
        south += float(released(tmp_path / "out.csv")[0]["lat"]) < 35.0
    assert 33 < south < 87


def test_more_than_a_tenth_is_not_left_out_without_another_word(tmp_path: Path) -> None:
    rows = [("ann", at(i), 400.0 if i < 3 else 60.0, 25.0) for i in range(20)]
    rows[10] = ("ann", "soon", 60.0, 25.0)
    source, out = write(tmp_path / "in.csv", "user,time,lat,lon", rows), tmp_path / "out.csv"
    with pytest.raises(PointError) as wrong:
        sanitize_files([source], out, M, drop_bad=True)
    for words in (
        "more than a tenth",
        f"3 of 20 points ({FAULT_REASONS[Fault.LAT_RANGE]})",
        f"1 of 20 points ({FAULT_REASONS[Fault.TIME]})",
        "--drop-bad=all",
        "nothing was released",
    ):
        assert words in str(wrong.value)
    assert not out.exists()
    assert sanitize_files([source], out, M, drop_bad="all").released == 16
    few = write(tmp_path / "few.csv", "user,time,lat,lon", rows[2:10])
    assert len(rows[2:10]) == 8
    with pytest.raises(PointError, match="1 of 8 points"):
        sanitize_files([few], out, M, drop_bad=True)
    enough = write(tmp_path / "enough.csv", "user,time,lat,lon", [*rows[2:10], *rows[11:]])
    assert sanitize_files([enough], out, M, drop_bad=True).released == 16


def test_nothing_left_names_the_reasons(tmp_path: Path) -> None:
    source = write(tmp_path / "in.csv", "time,lat,lon", [(at(i), "", 25.0) for i in range(4)])
    choices: tuple[DropBad, ...] = (True, "all")
    for drop_bad in choices:
        with pytest.raises(PointError, match=r"no points .* 4 of 4 points \(its latitude is miss"):
            sanitize_files([source], tmp_path / "out.csv", M, drop_bad=drop_bad)


def test_the_rest_of_a_broken_file_is_not_lost_without_another_word(tmp_path: Path) -> None:
    point = '<trkpt lat="60" lon="25"><time>{}</time></trkpt>'
    points = [point.format(at(i)) for i in range(50)]
    broken = tmp_path / "broken.gpx"
    broken.write_text(f"<gpx><trk><trkseg>{points[0]}<trkpt{''.join(points)}</trkseg></trk></gpx>")
    out = tmp_path / "out.csv"
    with pytest.raises(PointError, match=r"the rest of .*broken.gpx, line 1: its XML is broken"):
        sanitize_files([broken], out, M, drop_bad=True)
    assert sanitize_files([broken], out, M, drop_bad="all").released == 1
    short = tmp_path / "short.gpx"  # nothing more is there
    short.write_text(f"<gpx><trk><trkseg>{''.join(points)}")
    assert sanitize_files([short], out, M, drop_bad=True).released == 50


def test_vehicles_in_turns_get_a_hint_at_their_column(tmp_path: Path) -> None:
    rows = [(i, at(i // 4), 60.0, 25.0, f"bus {i % 4}", 30) for i in range(40)]
    source = write(tmp_path / "in.csv", "id,time,lat,lon,vehicle,speed", rows)
    out = tmp_path / "out.csv"
    with pytest.raises(PointError, match=r"30 of 40 points .* --user vehicle ") as wrong:
        sanitize_files([source], out, M)
    assert "'id'" not in str(wrong.value)  # it numbers rows
    assert sanitize_files([source], out, M, columns=Columns(user="vehicle")).released == 40
    assert sanitize_files([source], out, M, drop_bad="all").released == 10


def test_vehicles_that_never_meet_get_a_hint_too(tmp_path: Path) -> None:
    """At times of their own they could be one person, so that is not an error."""
    rows = [(i, at(i / 7), 60.0, 25.0, f"bus {i % 4}") for i in range(40)]
    source = write(tmp_path / "in.csv", "id,time,lat,lon,vehicle", rows)
    out = tmp_path / "out.csv"
    summary = sanitize_files([source], out, M)
    assert (summary.users, summary.possible_users) == (1, ["vehicle"])
    hint = "If 'vehicle' has a value per person or vehicle: --user vehicle."
    assert hint in summarise(summary, M, "out.csv", None, False)
    named = sanitize_files([source], out, M, columns=Columns(user="vehicle"))
    assert (named.users, named.possible_users) == (4, [])
    assert "--user" not in summarise(named, M, "out.csv", None, False)


@pytest.mark.parametrize(("times", "said"), [(3, False), (6, True)])
def test_rounded_times_are_pointed_out(tmp_path: Path, times: int, said: bool) -> None:
    """Where more than half of the points are left out: here all but one of the midnights."""
    rows = [("2026-05-05T00:00:00Z", 60.0, 25.0)] * times
    rows += [(at(i), 60.0, 25.0) for i in range(3)]
    source = write(tmp_path / "in.csv", "time,lat,lon", rows)
    summary = sanitize_files([source], tmp_path / "out.csv", M)
    assert summary.bad == {REPEATED: times - 1}
    text = summarise(summary, M, "out.csv", None, False)
    assert ("Most points have the time of another" in text) == said


def test_files_with_and_without_traces_are_not_told_to_spend_twice(tmp_path: Path) -> None:
    """The histories of one person, as Takeout has them beside activities of Fit."""
    write(tmp_path / "a.csv", "time,lat,lon", [(at(0), 60.0, 25.0)])
    write(tmp_path / "b.csv", "trip,time,lat,lon", [("t", at(60), 60.0, 25.0)])
    both = [tmp_path / "a.csv", tmp_path / "b.csv"]
    with pytest.raises(ParameterError, match=r"give a folder as OUT, and --to FORMAT") as wrong:
        sanitize_files(both, tmp_path / "out.csv", M)
    assert "separately" not in str(wrong.value)
    assert sanitize_files(both, tmp_path / "out", M, to_form="csv").released == 2


def test_mixed_offsets_are_converted(tmp_path: Path) -> None:
    rows = [("2026-05-05T12:00:00+03:00", 60, 25), ("2026-05-05T11:30:00+02:00", 60, 25)]
    source, out = write(tmp_path / "in.csv", "time,lat,lon", rows), tmp_path / "out.csv"
    sanitize_files([source], out, M)
    assert [row["time"] for row in released(out)] == [
        "2026-05-05T09:00:00Z",
        "2026-05-05T09:30:00Z",
    ]


TRIPS = [
    ("ann", "Home to Oncology Clinic", at(100), 60.0, 25.0),
    ("ann", "Home to Oncology Clinic", at(110), 60.0, 25.0),
    ("ann", "A stroll", at(200), 60.0, 25.0),
    ("ann", "Zoo", at(0), 60.0, 25.0),
    ("bob", "Zoo", at(5), 60.0, 25.0),
]


@pytest.mark.parametrize("units", [1, 2, 100])
@pytest.mark.parametrize("m", [M, hereish.independent(PRIVACY, reports=9, window=EachTrace())])
def test_traces_are_numbered_by_time_unless_their_names_are_asked_for(
    tmp_path: Path, units: int, m: hereish.PredictiveMechanism
) -> None:
    source = write(tmp_path / "in.csv", "user,trip,time,lat,lon", TRIPS)
    out = tmp_path / "out.csv"
    with small_units(units):
        sanitize_files([source], out, m)
        assert "Home" not in out.read_text()
        told = [(row["user"], row["trip"]) for row in released(out)]
        ann = [("ann", number) for number in ("1", "2", "2", "3")]
        assert told == [*ann, ("bob", "1")]
        sanitize_files([source], out, m, columns=Columns(trace="trip", keep_trace_names=True))
    names = {row["trip"] for row in released(out)}
    assert names == {"Home to Oncology Clinic", "A stroll", "Zoo"}


def test_nor_does_the_order_of_the_input_publish_them(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in.csv", "user,trip,time,lat,lon", TRIPS), tmp_path / "out.csv"
    sanitize_files([source], out, M, order="input")
    assert [row["trip"] for row in released(out)] == ["2", "2", "3", "1", "1"]


def test_names_of_tracks_are_published_if_that_is_asked_for(tmp_path: Path) -> None:
    track = tmp_path / "in.gpx"
    point = f'<trkpt lat="60" lon="25"><time>{at(0)}</time></trkpt>'
    track.write_text(f"<gpx><trk><name>To the clinic</name><trkseg>{point}</trkseg></trk></gpx>")
    out = tmp_path / "out.csv"
    sanitize_files([track], out, M)
    assert [row["trace"] for row in released(out)] == ["1"]
    sanitize_files([track], out, M, columns=Columns(keep_trace_names=True))
    assert [row["trace"] for row in released(out)] == ["To the clinic"]


def test_the_command_asks_before_it_loses_much(tmp_path: Path) -> None:
    rows = [*((*trip[:3], 400.0, 25.0) for trip in TRIPS[:1]), *TRIPS[1:]]
    write(tmp_path / "in.csv", "user,trip,time,lat,lon", rows)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "hereish", "sanitize", *options, "in.csv", "-o", "out.csv"]
        return subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, check=False)  # noqa: S603  # ours

    few = run("--drop-bad")
    assert (few.returncode, "--drop-bad=all" in few.stderr) == (1, True)
    done = run("--drop-bad=all", "--keep-trace-names")
    assert done.returncode == 0, done.stderr
    assert "Oncology" in (tmp_path / "out.csv").read_text()
    wrong = run("--time-format", "nonsense")
    assert (wrong.returncode, "strptime" in wrong.stderr) == (2, True)


def test_times_that_were_taken_as_utc_are_pointed_out(tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"

    def said(offset: str, columns: Columns | None = None) -> bool:
        write(source, "user,time,lat,lon", [("ann", f"2026-05-05 08:00:00{offset}", 60.1, 24.9)])
        summary = sanitize_files([source], out, M, columns=columns)
        return "were taken as UTC" in summarise(summary, M, str(out), None, replaced=False)

    assert said("")
    assert not said("", Columns(zone=ZoneInfo("Europe/Helsinki")))
    assert not said("Z")


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_so_are_timestamps_of_parquet_without_a_zone(tmp_path: Path, zone: str | None) -> None:
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    at = pa.array([1_778_000_000, None], pa.timestamp("s", zone))
    pq.write_table(pa.table({"time": at, "lat": [60.1, 60.1], "lon": [24.9, 24.9]}), source)
    helsinki = Columns(zone=ZoneInfo("Europe/Helsinki"))
    without, given = (
        sanitize_files([source], out, M, columns=columns, drop_bad="all")
        for columns in (Columns(), helsinki)
    )
    assert (without.taken_as_utc, given.taken_as_utc) == (zone is None, False)
