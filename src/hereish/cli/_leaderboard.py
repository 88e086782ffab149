"""`hereish evaluate --leaderboard`: every mechanism, tuned on some users and scored on others."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from hereish.cli._datasets import choose_time_zone, load_datasets
from hereish.cli._input_options import InputOptions
from hereish.cli._messages import note
from hereish.cli._options import RunOptions
from hereish.cli._progress import Progress
from hereish.errors import ParameterError
from hereish.evaluation import dataset, leaderboard, leaderboard_page
from hereish.evaluation.situations import Limits
from hereish.evaluation.study import Row, write_table

QUICK_USERS, QUICK_DAYS = 16, 4


def run_leaderboard(
    names: tuple[str, ...],
    board: leaderboard.Leaderboard,
    quick: bool,
    folder: Path,
    source: InputOptions,
    run: RunOptions,
) -> None:
    """Compute, write and print the leaderboard."""
    if len(names) > 1:
        raise ParameterError("a leaderboard is of one data set: a file, a folder or a glob")
    make_up = _quick_city if quick else dataset.synthetic_days
    ((data, identity),) = load_datasets(names, source, run, make_up)
    zone = choose_time_zone(names, data, source, run)
    folder.mkdir(parents=True, exist_ok=True)
    with Progress("evaluating", run.quiet, "mechanisms") as progress:
        rows = leaderboard.run(
            board, data, identity, zone, folder, jobs=run.threads, progress=progress
        )
    write_table([_flat(row) for row in rows], folder / "leaderboard.parquet")
    limits = Limits.of_accuracy(board.settings.accuracy_m)
    figures = _draw_figures(rows, limits, folder)
    training = dataset.split_users(data.users, board.train_share, board.seed)
    about = {
        "dataset": data.name,
        "training": int(training.sum()),
        "held_out": int((~training).sum()),
        "trials": board.trials,
        "mean_m": limits.mean_m,
        "p90_m": limits.p90_m,
        "command": _command(names, board, quick, zone, source),
    }
    page = folder / "leaderboard.md"
    part = page.with_name(f".{page.name}.part")
    text = leaderboard_page.format_page(rows, about, figures)
    part.write_text(text, encoding="utf-8")
    part.replace(page)
    if run.as_json:
        click.echo(json.dumps({"rows": rows}))
    elif not run.quiet:
        click.echo(f"{page}, {folder / 'leaderboard.parquet'} and {len(figures)} figures.")


def _quick_city() -> dataset.Trajectories:
    return dataset.synthetic_days(QUICK_USERS, QUICK_DAYS)


def _flat(row: Row) -> Row:
    """Without what has no place in a table: the curve, and numbers as text."""
    return {key: value for key, value in row.items() if key != "curve"} | {
        "numbers": json.dumps(row["numbers"])
    }


def _command(
    names: tuple[str, ...],
    board: leaderboard.Leaderboard,
    quick: bool,
    zone: str,
    source: InputOptions,
) -> str:
    """The command that makes the same page, without the folders of this machine."""
    words = ["hereish", "evaluate", "--leaderboard", *(Path(name).name for name in names)]
    words += ["-o", "leaderboard"]
    if quick:
        words.append("--quick")
    if source.time_zone is not None:
        words += ["--time-zone", zone]
    return shlex.join([*words, "--trials", str(board.trials), "--seed", str(board.seed)])


def _draw_figures(rows: list[Row], limits: Limits, folder: Path) -> list[str]:
    """The names of those drawn, beside the page."""
    try:
        from hereish.evaluation.figures import files
    except ImportError:
        note("figures need matplotlib: pip install 'hereish[plot]'")
        return []
    drawn = files.draw_frontiers(rows, limits, folder / "figures")
    return [f"figures/{path.name}" for path in drawn]
