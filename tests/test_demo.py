from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

WHOLE_DAY = "whole day (the default)"
ROWS = (
    "independent, 3 km",
    "predictive, 3 km",
    "predictive with skip (30 km/h), 3 km",
    "predictive, skip restarted, 3 km",
    "independent, 30 reports",
    "predictive, 30 reports",
)


def demo(folder: Path, *arguments: str, blocked: str = "") -> subprocess.CompletedProcess[str]:
    """Run the demo in `folder`, as if the package `blocked` were not installed."""
    environment = os.environ | {"PYTHONIOENCODING": "utf-8", "MPLCONFIGDIR": str(folder / "mpl")}
    if blocked:
        hollow = folder / "hollow" / blocked
        hollow.mkdir(parents=True)
        (hollow / "__init__.py").write_text("raise ImportError('not installed')\n")
        environment["PYTHONPATH"] = str(hollow.parent)
    return subprocess.run(  # noqa: S603  # our own module, our own arguments
        [sys.executable, "-m", "hereish.demo", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def cells(printed: str, row: str) -> list[float]:
    """The numbers of a row: made, wanted, per cent, average and 90 % error, budget, noise."""
    line = next(line for line in printed.splitlines() if line.startswith(row + "  "))
    return [float(number) for number in re.findall(r"[\d.]+", line.removeprefix(row))]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a seeded demo printed, and the folder that it ran in."""
    folder = tmp_path_factory.mktemp("demo")
    done = demo(folder, "--seed", "1")
    assert done.returncode == 0, done.stderr
    return done.stdout, folder


@pytest.mark.parametrize("row", [WHOLE_DAY, *ROWS])
def test_every_row_makes_sense(ran: tuple[str, Path], row: str) -> None:
    made, wanted, per_cent, average_m, most_m, budget, noise = cells(ran[0], row)
    assert 0 < noise <= made <= wanted
    assert per_cent == pytest.approx(100 * made / wanted, abs=1.0)
    assert 500 < average_m < most_m < 6000
    assert 0 < budget <= 100


def test_prediction_covers_more_at_3_km_and_errs_less_at_30_reports(ran: tuple[str, Path]) -> None:
    made = {row: cells(ran[0], row)[0] for row in ROWS}
    alone, predictive, skip, restarted = (made[row] for row in ROWS[:4])
    assert alone < predictive < skip <= restarted
    assert alone == 17.0  # 5.63 % of the budget each
    average_m = {row: cells(ran[0], row)[3] for row in ROWS}
    assert average_m["predictive, 30 reports"] < 0.8 * average_m["independent, 30 reports"]


def test_the_default_answers_all_day_and_errs_least(ran: tuple[str, Path]) -> None:
    made, wanted, _, average_m, most_m, *_ = cells(ran[0], WHOLE_DAY)
    assert made == wanted
    assert average_m < min(cells(ran[0], row)[3] for row in ROWS)
    assert most_m < min(cells(ran[0], row)[4] for row in ROWS)


def test_it_says_what_is_promised_and_what_is_not(ran: tuple[str, Path]) -> None:
    words = " ".join(ran[0].split())
    assert (
        "at most 10 times as likely from one trace as from any other that stays within 100 m"
        in words
    )
    assert "averaged over 200 sanitisations" in words
    assert "for its owner's eyes only" in words
    assert "NOT PRIVATE" in words
    assert str(ran[1].resolve() / "demo-trace.png") in words


def test_the_picture_is_not_blank(ran: tuple[str, Path]) -> None:
    image = pytest.importorskip("matplotlib.image")
    pixels = image.imread(ran[1] / "demo-trace.png")
    height, width = pixels.shape[:2]
    assert width > height > 600
    assert (pixels[..., :3].min(axis=2) < 0.9).mean() > 0.01
    # The true day, fresh noise and repeated releases are all there, in their colours.
    for colour in ((0, 114, 178), (213, 94, 0), (230, 159, 0)):
        assert (abs(255 * pixels[..., :3] - colour).max(axis=2) < 2).sum() > 100


def test_a_seed_repeats_and_without_one_nothing_is_called_not_private(
    ran: tuple[str, Path], tmp_path: Path
) -> None:
    again = demo(tmp_path, "--seed", "1", "--picture", "again.png").stdout
    secure = demo(tmp_path, "--picture", "secure.png").stdout
    assert (tmp_path / "again.png").read_bytes() == (ran[1] / "demo-trace.png").read_bytes()
    for row in ROWS:
        assert cells(again, row) == cells(ran[0], row)
    assert any(cells(secure, row) != cells(again, row) for row in ROWS)
    assert "NOT PRIVATE" not in secure


def test_without_matplotlib_there_is_a_table_and_a_hint(tmp_path: Path) -> None:
    done = demo(tmp_path, "--seed", "1", blocked="matplotlib")
    assert done.returncode == 0, done.stderr
    assert all(cells(done.stdout, row) for row in ROWS)
    assert "pip install 'hereish[plot]'" in done.stdout
    assert not list(tmp_path.glob("*.png"))


def test_the_picture_needs_nothing_but_matplotlib() -> None:
    code = (
        "import sys; before = set(sys.modules); import hereish.evaluation.figures.release_map\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter and our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "matplotlib" in done.stdout.split()
    others = {"click", "optuna", "pandas", "pyarrow", "sqlalchemy", "tqdm"}
    assert not others & set(done.stdout.split())


def test_a_picture_that_cannot_be_written_is_an_error_after_the_table(tmp_path: Path) -> None:
    done = demo(tmp_path, "--picture", "nowhere/trace.png")
    assert done.returncode == 1
    assert all(cells(done.stdout, row) for row in ROWS)
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_table_of_the_readme_is_what_the_demo_prints(ran: tuple[str, Path]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| (\w[^|]+) \| (\d+) \| ([\d.]+) km \| ([\d.]+) km \|", readme, re.M)
    rows = {
        "hereish": WHOLE_DAY,
        "planar Laplace, within the budget": "independent, 3 km",
    }
    assert [name for name, *_ in shown][:2] == list(rows)
    for name, reports, mean_km, p90_km in shown[:2]:
        printed = cells(ran[0], rows[name])
        assert printed[0] == pytest.approx(float(reports), abs=1.0)
        assert printed[3] / 1000 == pytest.approx(float(mean_km), abs=0.1)
        assert printed[4] / 1000 == pytest.approx(float(p90_km), abs=0.15)
