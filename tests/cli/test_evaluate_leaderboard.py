"""`hereish evaluate --leaderboard` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.terminal import Terminal


def test_a_quick_leaderboard_of_the_made_up_city(hereish: Terminal, tmp_path: Path) -> None:
    out = tmp_path / "board"
    asked = ("evaluate", "--leaderboard", "--quick", "-o", out, "--jobs", 2)
    done = hereish(*asked, "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    table = pq.read_table(out / "leaderboard.parquet").to_pylist()
    assert len(table) == len(rows)
    by_name = {(row["mechanism"], row["p"]): row for row in rows}
    for p in (0.5, 1.0):
        rates = {name: row["rate_at_limits"] for (name, case), row in by_name.items() if case == p}
        private = {name: rate for name, rate in rates.items() if not name.startswith("bound")}
        bounds = [rate for name, rate in rates.items() if name.startswith("bound")]
        # Independent noise of these limits costs what theory says, and nothing costs more.
        assert private["independent noise"] == pytest.approx(0.0563, rel=0.05)
        assert max(private.values()) == private["independent noise"]
        # A test that is free and exact is a bound.
        assert max(bounds) < min(private.values())
        assert private["noise first, places of all traces"] < private["the paper's fixed utility"]
        for (_, case), row in by_name.items():
            if case == p:
                assert row["rate_lo"] <= row["rate"] <= row["rate_hi"]
                assert row["rate_pooled_at_limits"] > 0
                noises = [point["accuracy_m"] for point in row["curve"]]
                assert noises == sorted(noises)
                assert row["curve"][0]["rate"] > row["curve"][-1]["rate"]
    days = [row for row in rows if row["sampling"] == "days"]
    means = {row["mechanism"]: row["belief_mean_m"] for row in days}
    assert min(means, key=means.__getitem__) == "bound: free exact test"
    assert means["noise first, paced, places"] < means["the paper's fixed rate"]

    page = (out / "leaderboard.md").read_text()
    assert "hereish evaluate --leaderboard -o leaderboard --quick --trials 4 --seed 1" in page
    assert str(tmp_path) not in page
    for row in rows:
        assert f"| {row['mechanism']}" in page
    shown = by_name["noise first, last release", 1.0]
    assert f"{shown['rate_at_limits']:.2%} / {shown['rate_pooled_at_limits']:.2%}" in page
    assert "(not private)" in page
    assert "](figures/leaderboard-authors.png)" in page
    assert (out / "figures" / "leaderboard-authors.png").read_bytes().startswith(b"\x89PNG")

    cells = sorted((out / "leaderboard-cells").glob("*.json"))
    assert len(cells) == len(rows)
    marked = next(path for path in cells if "rate_at_limits" in path.read_text())
    marked.write_text(json.dumps(json.loads(marked.read_text()) | {"rate_at_limits": 0.4321}))
    again = hereish(*asked, "--quiet")  # in no time: what is finished is not done again
    assert (again.code, again.out) == (0, "")
    assert "43.21%" in (out / "leaderboard.md").read_text()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--trials", "3"), "--trials are of a leaderboard"),
        (("--leaderboard", "--days"), "leave out --days"),
        (("--leaderboard", "--sampling", "gaps"), "leave out --sampling"),
        (("--leaderboard", "a.csv", "b.csv"), "one data set"),
    ],
)
def test_usage_errors_are_explained(
    hereish: Terminal, tmp_path: Path, args: tuple[str, ...], words: str
) -> None:
    done = hereish("evaluate", *args, "-o", tmp_path / "board", "--quick")
    assert done.code == 2
    assert words in done.err
