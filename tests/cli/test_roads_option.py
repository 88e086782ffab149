"""--prediction roads --roads FILE: followed by hereish sanitize, and refused where it cannot be."""

from __future__ import annotations

import csv
import io
import pickle
from pathlib import Path

import pytest

from hereish.roads import graph_from_lines, save_roads
from hereish.traces.files import sanitize_files
from tests.support.terminal import Terminal, output_of

# An hour's drive round a block of 20 km, with a fix every ten seconds.
SIDE_DEG = 0.18
CORNERS = [(60.0, 24.0), (60.0 + SIDE_DEG, 24.0), (60.0 + SIDE_DEG, 24.36), (60.0, 24.36)]
WIDE = ("--level", "ln 10", "--radius", "1m", "--accuracy", "200m", "--seed", "1")


def along(share: float) -> tuple[float, float]:
    side, rest = divmod(4.0 * share, 1.0)
    (a, b), (c, d) = CORNERS[int(side) % 4], CORNERS[(int(side) + 1) % 4]
    return a + rest * (c - a), b + rest * (d - b)


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    path = tmp_path / "drive.csv"
    rows = ["user,time,lat,lon"]
    for i in range(360):
        lat, lon = along(i / 360)
        rows.append(f"a,2026-05-05T12:{i // 6:02}:{10 * (i % 6):02}Z,{lat:.6f},{lon:.6f}")
    path.write_text("\n".join(rows))
    return path


@pytest.fixture
def roads(tmp_path: Path) -> Path:
    path = tmp_path / "roads.csv"
    ring = [*CORNERS, CORNERS[0]]
    rows = ["way,lat,lon", *(f"1,{lat},{lon}" for lat, lon in ring)]
    path.write_text("\n".join(rows))
    return path


def kinds_of(path: Path) -> list[str]:
    return [row["kind"] for row in csv.DictReader(io.StringIO(path.read_text()))]


def test_roads_are_followed(hereish: Terminal, drive: Path, roads: Path) -> None:
    found = {}
    for name, more in {
        "parrot": ("--prediction", "parrot"),
        "roads": ("--prediction", "roads", "--roads", str(roads)),
    }.items():
        out = drive.with_name(f"{name}.csv")
        output_of(hereish("sanitize", drive, "-o", out, *WIDE, *more))
        found[name] = kinds_of(out)
    assert len(found["roads"]) > 1.2 * len(found["parrot"]), "so the budget lasts longer"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--accuracy", "200m", "--prediction", "roads"), "--prediction roads needs --roads FILE"),
        (("--accuracy", "200m", "--roads", "FILE"), "--roads needs --prediction roads"),
        (("--prediction", "roads", "--roads", "FILE"), "--prediction roads needs --accuracy"),
        (
            ("--mechanism", "independent", "--reports", "9", "--prediction", "roads"),
            "leave out --prediction",
        ),
        (
            ("--accuracy", "3km", "--prediction", "roads", "--roads", "none.csv"),
            "none.csv: cannot be read",
        ),
        (
            (
                *("--accuracy", "3km", "--prediction", "roads", "--roads", "FILE"),
                *("--ledger", "ledger.db", "--job", "one", "--add-users"),
            ),
            "a policy names no files: leave out --roads",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    hereish: Terminal, drive: Path, roads: Path, options: tuple[str, ...], reason: str
) -> None:
    given = [str(roads) if one == "FILE" else one for one in options]
    out = drive.with_name("out.csv")
    done = hereish("sanitize", drive, "-o", out, *given)
    assert done.code == 2
    assert reason in done.err
    assert not out.exists()


@pytest.mark.parametrize("command", [("plan",), ("user", "add", "alice")])
def test_policies_refuse_it(hereish: Terminal, command: tuple[str, ...]) -> None:
    done = hereish(*command, "--accuracy", "3km", "--prediction", "roads")
    assert done.code == 2
    assert "a policy names none" in done.err
    assert "--prediction roads is for hereish sanitize" in done.err


def test_the_file_must_not_follow_from_the_secret_says_the_help(hereish: Terminal) -> None:
    told = " ".join(output_of(hereish("sanitize", "--help")).split())
    assert "it must not be chosen by where somebody is" in told


def test_an_engine_gets_the_same_roads(drive: Path) -> None:
    """What Spark's workers get: the mechanism through pickle, known by the network's content."""
    import hereish
    from hereish.roads import RoadPrediction, load_roads

    network = graph_from_lines([[*CORNERS, CORNERS[0]]], name="ring")
    save_roads(network, drive.with_name("ring.npz"))
    again = load_roads(drive.with_name("ring.npz"))
    made = [
        hereish.fixed_utility(
            hereish.Privacy(2.3, 1.0), 200.0, prediction=RoadPrediction(graph, still_m=400.0)
        )
        for graph in (network, again)
    ]
    copied = pickle.loads(pickle.dumps(made[0]))  # noqa: S301  # our own bytes
    assert copied.fingerprint == made[1].fingerprint == made[0].fingerprint
    outs = []
    for number, m in enumerate((made[0], copied)):
        out = drive.with_name(f"out{number}.csv")
        sanitize_files([str(drive)], str(out), m, seed=3)
        outs.append(out.read_bytes())
    assert outs[0] == outs[1]
