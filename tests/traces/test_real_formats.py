"""Real files of other projects: each is taken, or refused in words that tell no place."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import hereish
from hereish.traces.files import sanitize_files
from tests.support.format_table import FORMATS, Family, table_lines, try_files
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(
    not FORMATS.is_dir(), reason="the real files (../shared/data/formats) are not on this machine"
)
M = hereish.fixed_utility(hereish.Privacy(math.log(10), 100), 3000, window=hereish.Day("UTC"))
# Tables that are no history of places, or do not say what their columns are.
NO_HISTORY = (
    "no column of times",
    "no columns of places",
    "it has numbers, so it is no header",
    "its first line has a single field",
    "all points: its point is missing, or not a single point",  # lines and areas
    "all points: it has no time, or none that can be read",
    "some points: it has no time, or none that can be read",
    "some points: its time has no date",
)


@pytest.fixture(scope="module")
def families() -> dict[str, Family]:
    return try_files()


def test_no_reason_quotes_a_place(families: dict[str, Family]) -> None:
    for family in families.values():
        for note in family.files:
            assert not re.search(r"\d+\.\d{3,}", note.split(": ", 1)[1])


def test_the_page_has_the_table_of_these_files(families: dict[str, Family]) -> None:
    page = (ROOT / "docs" / "files.md").read_text("utf-8")
    lines = list(table_lines(families))
    listed = [line for line in page.splitlines() if line.startswith(lines[0][:20])]
    assert listed == [lines[0]]
    for line in lines[2:]:
        begin = " | ".join(line.split(" | ")[:2])
        if f"\n{begin} |" in page:  # the same number of files: they are those of the page
            assert f"\n{line}\n" in page


def test_most_files_that_have_something_are_taken(families: dict[str, Family]) -> None:
    """Broken ones are among them on purpose; of the others a reader that fails would lose most."""
    for name in ("FIT", "Google's location history", "KML and KMZ", "MF-JSON", "NMEA"):
        family = families[name]
        assert family.taken > sum(family.refused.values()), name


@pytest.mark.parametrize(
    ("name", "least"), [("GPX", 0.95), ("CSV and TSV", 0.9), ("GeoLife", 0.95)]
)
def test_tables_and_tracks_with_places_and_times_are_taken(
    families: dict[str, Family], name: str, least: float
) -> None:
    family = families[name]
    refused = sum(count for why, count in family.refused.items() if why not in NO_HISTORY)
    assert family.taken >= least * (family.taken + refused)


@pytest.mark.parametrize(
    "name",
    [
        "trackintel/examples/data/google_trajectory.csv",  # the newest first
        "trackintel/examples/data/posmo_trajectory.csv",
        "scikit-mobility/examples/privacy_toy.csv",
        "dawarich/spec/fixtures/files/csv/e7_integers.csv",
        "gpsbabel/reference/track/bike~unicsv.csv",  # date and time in two columns
        "gpsbabel/reference/track/sim.csv",  # AM and PM
    ],
)
def test_known_files_lose_no_row(tmp_path: Path, name: str) -> None:
    lines = (FORMATS / name).read_text("utf-8").splitlines()
    rows = sum(1 for line in lines if line.strip()) - 1
    assert sanitize_files([FORMATS / name], tmp_path / "out.csv", M).points == rows
