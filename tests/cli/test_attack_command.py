"""`hereish attack` as people run it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hereish
from hereish import synthetic
from hereish.cli import group
from hereish.errors import HereishError
from hereish.traces.formats.registry import FORMATS
from tests.support.observed import PRIVACY, WINDOW, people, released

ZONE = ("--time-zone", synthetic.TIME_ZONE)
PREDICTED = [
    *(("--prediction", name) for name in ("places", "mobility")),
    *(("--accuracy", "3km", "--prediction", name) for name in ("linear", "filter", "ensemble")),
    ("--prior", "world"),
    ("--quiet-hours", "23:00-06:30"),
    ("--mechanism", "independent", "--reports", "48"),
]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(group(), [str(one) for one in arguments])


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people on three days, and what was released of them."""
    folder = tmp_path_factory.mktemp("traces")
    at_s, places = people(2, 3)
    rows = ["user,time,lat,lon"]
    for name, own in zip("ab", places, strict=True):
        for at, (lat, lon) in zip(at_s.tolist(), own.tolist(), strict=True):
            rows.append(f"{name},{datetime.fromtimestamp(at, UTC).isoformat()},{lat:.6f},{lon:.6f}")
    (folder / "true.csv").write_text("\n".join(rows) + "\n")
    for options in ((), ("--preset", "paper-utility", "--accuracy", "3km")):
        out = folder / ("paper.csv" if options else "public.csv")
        assert not run("sanitize", folder / "true.csv", "-o", out, *ZONE, *options).exit_code
    return folder


def findings(*arguments: str | Path) -> dict[str, Any]:
    done = run("attack", *arguments, "--json", "--quiet", "--jobs", "1")
    assert done.exit_code == 0, done.output
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_a_file_is_attacked_by_what_it_says_of_itself(traces: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    found = findings(traces / "public.csv", "-o", page)
    assert [one["user"] for one in found["people"]] == ["a", "b"]
    for one in found["people"]:
        assert one["releases"] == 144
        assert one["observer_error_m"] is None
        assert abs(one["odds"]["log_odds"]) <= one["odds"]["promised_log_odds"]
        assert 0.0 < one["home"]["sure_within_m"]["200"] < 1.0
    assert page.stat().st_mode & 0o077 == 0
    assert "What an observer learns" in page.read_text()


WRITTEN = {
    **{f"public.{end}": end for end in ("gpx", "geojson", "csv", "tsv", "parquet", "gpkg", "kml")},
    "public.kmz": "kmz",
    "public.json": "mfjson",
    "public.pq": "geoparquet",
    "plt": "geolife",
    "taxis": "tdrive",
}


@pytest.mark.parametrize(("name", "form"), WRITTEN.items(), ids=str)
def test_every_format_that_is_written_tells_the_observer_the_same(
    name: str, form: str, traces: Path, tmp_path: Path
) -> None:
    """GeoLife's files say neither zone, kinds nor costs; T-Drive's the zone, in a file beside.

    Without kinds, a frozen place that is released again looks like an accepted guess, so places
    are not frozen there.
    """
    out, page = tmp_path / name, tmp_path / "page.html"
    mute = form in ("geolife", "tdrive")
    preset = ("--preset", "few-days") if mute else ()
    how = (*ZONE, "--seed", "3", *preset)
    true = traces / "true.csv"
    made = run("sanitize", true, "-o", out, "--to", form, *how)
    assert made.exit_code == 0, made.output
    plain = run("sanitize", true, "-o", tmp_path / "plain.csv", *how)
    assert plain.exit_code == 0, plain.output
    given = (*(ZONE if form == "geolife" else ()), *preset)
    found = findings(out, "--format", form, "-o", page, *given)
    expected = findings(tmp_path / "plain.csv", "-o", page, *preset)
    assert found["settings_checked"] is not mute
    assert found["people"] == expected["people"]
    done = run("attack", out, "--format", form, "-o", page, "--quiet", "--jobs", "1", *given)
    assert ("nothing shows whether it was made with these settings" in done.stderr) is mute


def test_these_are_all_formats_that_are_written() -> None:
    assert set(WRITTEN.values()) == {
        one.name for one in FORMATS.values() if one.open_writer is not None
    }


def test_how_far_apart_points_were_taken_is_known_from_the_file(
    traces: Path, tmp_path: Path
) -> None:
    out = tmp_path / "hourly.csv"
    made = run("sanitize", traces / "true.csv", "-o", out, *ZONE, "--every", "1h")
    assert made.exit_code == 0, made.output
    page = tmp_path / "page.html"
    assert findings(out, "-o", page) == findings(out, "-o", page, "--every", "1h")


@pytest.mark.parametrize(
    "budgets",
    [("ln 10/day", "ln 50/month"), ("ln 10/24h",), ("ln 10/day", "ln 50/30d", "ln 1e6/forever")],
    ids=str,
)
def test_budgets_of_several_windows_are_replayed(
    budgets: tuple[str, ...], traces: Path, tmp_path: Path
) -> None:
    given = [part for budget in budgets for part in ("--budget", budget)]
    out, page = tmp_path / "nested.csv", tmp_path / "page.html"
    made = run("sanitize", traces / "true.csv", "-o", out, *ZONE, *given)
    assert made.exit_code == 0, made.output
    for one in findings(out, "-o", page, *given)["people"]:
        assert abs(one["odds"]["log_odds"]) <= one["odds"]["promised_log_odds"]
    without = run("attack", out, "-o", page, "--quiet")
    assert "--budget" in str(without.exception)


@pytest.mark.parametrize("options", PREDICTED, ids=str)
def test_every_prediction_is_replayed(
    options: tuple[str, ...], traces: Path, tmp_path: Path
) -> None:
    out, page = tmp_path / "guessed.csv", tmp_path / "page.html"
    made = run("sanitize", traces / "true.csv", "-o", out, *ZONE, *options)
    assert made.exit_code == 0, made.output
    for one in findings(out, "-o", page, *options)["people"]:
        assert abs(one["odds"]["log_odds"]) <= one["odds"]["promised_log_odds"]


def test_with_the_truth_it_is_scored_and_no_true_place_is_in_the_numbers(
    traces: Path, tmp_path: Path
) -> None:
    true = traces / "true.csv"
    found = findings(
        traces / "public.csv", "--truth", true, "--past", true, "-o", tmp_path / "page.html"
    )
    for one in found["people"]:
        assert 100.0 < one["observer_error_m"] < 5000.0
        assert 100.0 < one["service_error_m"] < 5000.0
        assert one["rank"] in (1, 2)
        assert one["home"]["error_m"] > 0.0
    lat, lon = true.read_text().splitlines()[1].split(",")[2:]
    assert lat not in json.dumps(found)
    assert lon not in json.dumps(found)


def test_settings_that_the_file_does_not_say_are_asked_for(traces: Path, tmp_path: Path) -> None:
    page, paper = tmp_path / "page.html", ("--preset", "paper-utility", "--accuracy", "3km")
    wrong = run("attack", traces / "paper.csv", "-o", page, "--quiet")
    assert isinstance(wrong.exception, HereishError)
    assert "give the options" in str(wrong.exception)
    assert not page.exists()
    found = findings(traces / "paper.csv", "-o", page, *paper)
    assert found["people"][0]["hard"] > 3


def test_the_history_of_a_ledger_is_attacked_too(tmp_path: Path) -> None:
    at_s, places = people(1, 2)
    seen = released(hereish.whole_day(PRIVACY, window=WINDOW), at_s, places[0])
    assert seen.kind is not None
    assert seen.cost is not None
    rows = zip(seen.at_s.tolist(), seen.value.tolist(), seen.kind, seen.cost.tolist(), strict=True)
    history = [
        {
            "at": datetime.fromtimestamp(at, UTC).isoformat(),
            "lat": lat,
            "lon": lon,
            "kind": kind.value,
            "cost": cost,
        }
        for at, (lat, lon), kind, cost in rows
    ]
    file = tmp_path / "history.json"
    file.write_text(json.dumps({"releases": history[::-1], "next": None}))
    found = findings(file, "-o", tmp_path / "page.html", *ZONE)
    assert found["people"][0]["releases"] == 96


@pytest.mark.parametrize(("lat", "lon"), [(60.0, 200.0), (95.0, 20.0), (float("nan"), 1.0)])
def test_a_history_of_no_place_is_refused(lat: float, lon: float, tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    one = {"at": "2025-01-01T00:00:00Z", "lat": lat, "lon": lon, "kind": "hard", "cost": 0.001}
    file.write_text(json.dumps([one]))
    refused = run("attack", file, "-o", tmp_path / "page.html")
    assert "a release of the history" in str(refused.exception)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"at": "2025-01-01T00:00:00"}, "a history of a ledger has releases"),
        ({"lat": 10**400}, "a history of a ledger has releases"),
        (None, "nested too deeply"),
    ],
)
def test_a_hostile_history_is_refused(wrong: Any, said: str, tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    one = {"at": "2025-01-01T00:00:00Z", "lat": 60.0, "lon": 24.0, "kind": "hard", "cost": 0.001}
    deep = "[" * 100_000 + "]" * 100_000
    file.write_text(deep if wrong is None else json.dumps([one | wrong]))
    refused = run("attack", file, "-o", tmp_path / "page.html")
    assert said in str(refused.exception)


def test_more_processes_find_the_same(traces: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    alone = findings(traces / "public.csv", "-o", page)
    done = run("attack", traces / "public.csv", "-o", page, "--json", "--quiet", "--jobs", "2")
    assert json.loads(done.stdout) == alone


def test_a_page_does_not_replace_traces(traces: Path) -> None:
    for name in ("public.csv", "other.csv"):
        refused = run("attack", traces / "public.csv", "-o", traces / name)
        assert "file of traces" in str(refused.exception)
