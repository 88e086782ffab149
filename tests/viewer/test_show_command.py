from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hereish.cli.show import write_for_owner
from tests.support.browser import find_chromium

REPORTED = ("public.csv", "public.parquet", "public.geojson", "public.gpx")


def run(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    # A umask that would let everybody read what is written.
    code = "import os; os.umask(0); from hereish.cli import main; main()"
    return subprocess.run(  # noqa: S603  # our own interpreter and our own words
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up day of two people, true and reported."""
    there = tmp_path_factory.mktemp("show")
    assert run("sample", "-o", "true.csv", "--users", 2, folder=there).returncode == 0
    settings = ("--accuracy", "3km", "--time-zone", "Europe/Helsinki", "--quiet")
    for name in REPORTED:
        done = run("sanitize", "true.csv", "-o", name, *settings, folder=there)
        assert done.returncode == 0, done.stderr
    return there


def page_data(path: Path) -> Any:
    found = re.search(r'id="page-data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found.group(1))


@pytest.mark.parametrize("reported", REPORTED)
def test_a_page_for_the_owner_only(folder: Path, tmp_path: Path, reported: str) -> None:
    page = tmp_path / "page.html"
    page.write_text("an older page")
    page.chmod(0o644)
    done = run("show", "true.csv", reported, "-o", page, folder=folder)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert "contains true positions" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    data = page_data(page)
    assert data["zone"] == "Europe/Helsinki"
    assert "at most 10 times as likely" in data["guarantee"]["statement"]
    true_rows = len((folder / "true.csv").read_text().splitlines()) - 1
    assert sum(view["points"] for view in data["views"]) == true_rows
    assert data["unmatched"] == 0
    for view in data["views"]:
        hard, _, _, unknown = view["kinds"]
        assert hard > 0
        assert unknown == 0
        assert view["budget"]["shares"] == (data["guarantee"] is not None)
        assert 0 < view["budget"]["most_spent"] <= 1


def test_a_file_without_kinds_and_costs_will_do_and_quiet_is_quiet(
    folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    plain = tmp_path / "plain.csv"
    plain.write_bytes((folder / "true.csv").read_bytes())
    done = run("show", "true.csv", plain, "-o", page, "--quiet", folder=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for view in page_data(page)["views"]:
        assert view["mean_m"] == 0
        assert view["budget"] is None


@pytest.mark.parametrize("reported", REPORTED)
def test_thinned_points_are_told_from_refused_ones_in_every_format(
    folder: Path, tmp_path: Path, reported: str
) -> None:
    public, page = tmp_path / reported, tmp_path / "page.html"
    options = ("--every", "2h", "--time-zone", "Europe/Helsinki", "--json")
    done = run("sanitize", "true.csv", "-o", public, *options, folder=folder)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["thinned"] > 0
    assert run("show", "true.csv", public, "-o", page, folder=folder).returncode == 0
    data = page_data(page)
    assert data["every_s"] == 7200
    days = [view for view in data["views"] if view["day"] is not None]
    assert sum(view["thinned"] for view in days) == summary["thinned"]
    refused = sum(view["points"] - view["reports"] - view["thinned"] for view in days)
    assert refused == summary["refused"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("true.csv", "other.csv", "-o", "page.html"), "do not belong together"),
        (("true.csv", "public.gpx", "-o", "true.csv"), "is a file of traces"),
        (("true.csv", "public.gpx", "-o", "new.parquet"), "is a file of traces"),
        (("true.csv", "public.gpx", "-o", "nowhere/page.html"), "in an existing folder"),
        (("true.csv", "public.gpx", "-o", "."), "must name a file"),
        (("true.csv", "-", "-o", "page.html"), "REPORTED must be a file"),
        (("public.gpx", "true.csv", "-o", "page.html"), "swap them"),
        (("public.csv", "true.csv", "-o", "page.html"), "swap them"),
        (("true.csv", "true.csv", "-o", "page.html"), "must be two files, found true.csv twice"),
        (("true.csv", "missing.gpx", "-o", "page.html"), "missing.gpx"),
        (("true.csv", "public.gpx", "-o", "page.html", "--time-zone", "X/Y"), "IANA name"),
        (("true.csv", "public.gpx"), "--output"),
    ],
)
def test_what_was_asked_wrongly_is_said_and_nothing_is_written(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    (folder / "other.csv").write_text("user,time,lat,lon\nada,2020-01-01T00:00:00Z,60.12345,24.9\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = run("show", *arguments, folder=folder)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "60.12345" not in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_table_that_lost_its_guarantee_is_known_by_its_kinds(
    folder: Path, tmp_path: Path
) -> None:
    """As one that was written to standard output, which has no file beside it."""
    text = (folder / "true.csv").read_text().splitlines()
    (tmp_path / "true.csv").write_text("\n".join(text))
    (tmp_path / "public.csv").write_text((folder / "public.csv").read_text())
    done = run("show", "public.csv", "true.csv", "-o", "page.html", folder=tmp_path)
    assert (done.returncode, "swap them" in done.stderr) == (2, True)
    assert not (tmp_path / "page.html").exists()
    done = run("show", "true.csv", "public.csv", "-o", "page.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    # Kinds of something else, in a file that nothing was sanitised to.
    other = [text[0] + ",kind,cost", *(line + ",walk,0" for line in text[1:])]
    (tmp_path / "other.csv").write_text("\n".join(other))
    done = run("show", "other.csv", "true.csv", "-o", "page.html", folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_for_owner(path, "new, and half of it \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_browser_is_found_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEREISH_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_chromium() is None
    program = tmp_path / "google-chrome"
    program.touch(mode=0o755)
    assert find_chromium() == os.fspath(program)
    monkeypatch.setenv("HEREISH_CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="names no program"):
        find_chromium()


def test_users_that_are_files_are_found_again(tmp_path: Path) -> None:
    people = tmp_path / "people"
    people.mkdir()
    for name, seed in (("ann", 1), ("bob", 2)):
        assert run("sample", "-o", people / f"{name}.gpx", "--seed", seed, folder=people)
    setting = ("--user", "@file", "--accuracy", "3km")
    for out in ("all.csv", "apart"):
        done = run("sanitize", people, "-o", tmp_path / out, *setting, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        page = tmp_path / "page.html"
        done = run("show", people, out, "-o", page, "--user", "@file", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        data = page_data(page)
        assert data["unmatched"] == 0
        assert {data["users"][view["user"]] for view in data["views"]} == {"ann", "bob"}


def test_vehicles_in_turns_get_a_hint_at_their_column(tmp_path: Path) -> None:
    """As one person's, all but one point per time would be left out of the page."""
    rows = [f"bus {i % 4},2026-05-05T08:{i // 4:02}:00Z,60.{10 + i},24.9" for i in range(40)]
    (tmp_path / "true.csv").write_text("\n".join(["vehicle,time,lat,lon", *rows]))
    vehicle = ("--user", "vehicle")
    done = run("sanitize", "true.csv", "-o", "public.csv", *vehicle, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    names = ("show", "true.csv", "public.csv", "-o", "page.html")
    asked = run(*names, folder=tmp_path)
    assert (asked.returncode, "give --user vehicle" in asked.stderr) == (1, True)
    assert run(*names, *vehicle, folder=tmp_path).returncode == 0
    assert page_data(tmp_path / "page.html")["users"] == [f"bus {i}" for i in range(4)]
