"""The pages are true: their commands run, their transcripts are what is printed, links lead on.

Each page is a walk through one empty folder, from top to bottom. An indented line is a command that
must end well. A fence of `console` is a transcript: after `$ ` a command, and then what it prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from hereish.traces.column_names import OTHER_NAMES, RARE_NAMES, USUAL_NAMES
from hereish.traces.faults import FAULT_REASONS
from hereish.traces.formats.registry import FORMATS
from tests.support.paths import ROOT

PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))
RUN = ("hereish", "cat", "cp", "head", "ls", "mkdir", "printf", "python", "sed", "tail")
NOT_RUN = ("make", "pip")  # targets and extras are checked by tests of their own
SERVES = "hereish serve"  # goes on until it is stopped; tests/gateway runs it


class Step(NamedTuple):
    """A command of a page, and what it prints if the page says so."""

    line: int
    command: str
    prints: str | None = None


def steps(text: str) -> list[Step]:
    """All commands of a page in their order."""
    found: list[Step] = []
    fence: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
        elif fence == "console":
            if line.startswith("$ "):
                found.append(Step(number, line[2:], ""))
            else:
                last = found[-1]
                found[-1] = last._replace(prints=f"{last.prints}{line}\n")
        elif fence is None and re.match(r" {4}\S", line):
            found.append(Step(number, line.strip()))
    return found


def run(command: str, folder: Path, code_before: int = 0) -> tuple[int, str]:
    """The exit code of a command and what it prints, on standard error too."""
    settings = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",  # the order of `ls`
    }
    done = subprocess.run(  # noqa: S603  # the commands are those of our own pages
        # `$?` is the code of the step before, as in one shell.
        ["bash", "-o", "pipefail", "-c", f"(exit {code_before})\n{command}"],  # noqa: S607  # on PATH
        cwd=folder,
        env=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def walk(page: str, folder: Path) -> list[str]:
    """Take all steps of a page in a folder; returns what went wrong."""
    wrong, code = [], 0
    for line, command, prints in steps(page):
        if command.split()[0] in NOT_RUN or command.startswith(SERVES):
            continue
        code, printed = run(command, folder, code)
        if prints is None and code != 0:
            wrong.append(f"line {line}: {command}\nends with {code}: {printed}")
        if prints is not None and printed.split() != prints.split():
            wrong.append(f"line {line}: {command}\nprints: {printed}\nand not: {prints}")
    return wrong


def commands(page: Path) -> list[Step]:
    return steps(page.read_text("utf-8"))


def named(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=named)
def test_every_command_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    assert not walk(page.read_text("utf-8"), tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_indented_line_is_a_command_that_the_tests_know(page: Path) -> None:
    strange = [
        step for step in commands(page) if step.command.split()[0] not in (*RUN, *NOT_RUN, "echo")
    ]
    assert not strange


def test_the_walk_catches_what_is_wrong(tmp_path: Path) -> None:
    page = (
        "    hereish plan --accuracy 3km\n"
        "    hereish plan --window none\n"
        "    hereish nonsense | cat\n"
        "```python\n    hereish plan\n```\n"
        "```console\n$ hereish plan --reports 0\nall is well\n$ echo $?\n2\n```\n"
    )
    lines = [wrong.split(":")[0] for wrong in walk(page, tmp_path)]
    assert lines == ["line 2", "line 3", "line 8"]


def test_the_commands_are_found_on_the_pages_that_have_some() -> None:
    least = {"README.md": 1, "tutorial.md": 15, "files.md": 20, "cli.md": 12, "guide.md": 2}
    for name, count in least.items():
        page = next(page for page in PAGES if page.name == name)
        assert sum(step.command.split()[0] not in NOT_RUN for step in commands(page)) >= count, name


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(other.read_text("utf-8")), f"{page.name}: {target}"


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as links have them."""
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_page_of_files_knows_all_formats_names_and_faults() -> None:
    page = (ROOT / "docs" / "files.md").read_text("utf-8")
    text = " ".join(page.split())
    for form in FORMATS.values():
        for extension in form.extensions:
            assert f"`{extension}`" in text
        assert f"`{form.name}`" in text
    for role, names in USUAL_NAMES.items():
        tiers = (names, OTHER_NAMES[role], RARE_NAMES[role])
        listed_names = [", ".join(f"`{name}`" for name in some) for some in tiers]
        assert " ".join(f"| `--{role}` | {' | '.join(listed_names)} |".split()) in text
    listed = re.findall(r"(?<=The reasons are\n\n)(?:\* .+\n)+", page)
    assert listed == ["".join(f"* {words}\n" for words in FAULT_REASONS.values())]


def test_a_dense_log_is_as_the_tutorial_says(tmp_path: Path) -> None:
    def reported(options: str) -> tuple[int, float]:
        """How many reports there are, and over how many hours; the seed makes this repeatable."""
        sanitize = f"hereish sanitize log.csv -o out.csv --seed 1 --quiet {options}"
        assert run(sanitize, tmp_path)[0] == 0
        rows = (tmp_path / "out.csv").read_text("utf-8").splitlines()[1:]
        times = [datetime.fromisoformat(row.split(",")[1]) for row in rows]
        return len(rows), (times[-1] - times[0]).total_seconds() / 3600

    assert run("hereish sample -o log.csv --points 5000", tmp_path)[0] == 0
    dense, whole_h = reported("")
    assert (dense, whole_h > 12) == (5000, True)
    spread, whole_h = reported("--every 30min")
    assert 15 < spread < 40
    assert whole_h > 8
    papers, early_h = reported("--accuracy 3km")
    assert 20 < papers < 40
    assert early_h < 0.5
