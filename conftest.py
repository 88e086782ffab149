"""The examples of README and docs are tests: each page is run from top to bottom.

At the end of a run the counts of the tests of faults are printed, since a number says more than a
dot.
"""

from __future__ import annotations

from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md"],
).pytest()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = [
        words
        for report in terminalreporter.getreports("passed")
        for name, words in report.user_properties
        if name == "counts"
    ]
    if lines:
        terminalreporter.section("counts under faults")
        for words in lines:
            terminalreporter.write_line(words)
