"""Fails if the tests left a module of hereish unused: python -m tests.support.untested_modules

Reads what coverage measured in the last run of the tests. No percentage is asked for, but of every
module with functions at least one must have been called, and every other one imported.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import coverage


def untested_modules(files: Mapping[str, Any]) -> list[str]:
    """The files of which nothing ran but at most the import, by a report of coverage as JSON."""
    return sorted(path for path, measured in files.items() if not _was_run(measured))


def _was_run(measured: Mapping[str, Any]) -> bool:
    regions = measured["functions"]  # the empty name is that of the module's own lines
    functions = [region for name, region in regions.items() if name and _statements(region)]
    if functions:
        return any(region["executed_lines"] for region in functions)
    return bool(measured["executed_lines"]) or not _statements(measured)


def _statements(region: Mapping[str, Any]) -> int:
    return int(region["summary"]["num_statements"])


def main() -> None:
    measured = coverage.Coverage()
    measured.load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(path))
        files = json.loads(path.read_text("utf-8"))["files"]
    if untested := untested_modules(files):
        sys.exit(f"no test runs anything of: {', '.join(untested)}")


if __name__ == "__main__":
    main()
