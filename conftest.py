"""What all tests share: the pages are tests too, `--quick`, and what is printed at the end.

The examples of README and docs are tests: each page is run from top to bottom. At the end of a run
the counts of the tests under faults are printed, since a number says more than a dot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = Path(__file__).parent
# What `--quick` leaves out, as patterns of paths: tests that try very many cases, wait for clocks,
# or start many programs. Whatever is not named here runs in `make check`.
SLOW = ("docs/*.md",)

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md"],
).pytest()


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what conftest.SLOW names")


def pytest_ignore_collect(collection_path: Path, config: Any) -> bool | None:
    """Leave a slow file out before it is imported, which takes time as well."""
    if not config.getoption("--quick") or not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT)
    return True if any(path.match(pattern) for pattern in SLOW) else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = [
        line
        for report in terminalreporter.getreports("passed")
        for name, line in report.user_properties
        if name == "counts"
    ]
    if lines:
        terminalreporter.section("counts under faults")
        for line in lines:
            terminalreporter.write_line(line)
