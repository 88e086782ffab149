"""Runs `hereish` several times in one process: `spark_commands.py FOLDER`.

Starting Spark takes far longer than what the tests have it do, and so commands share it. The folder
has `commands.json`, the words of each command by its name; each writes NAME.json with what became
of it. What Java prints on standard output goes into the file `java`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.terminal import Terminal


def main(folder: Path) -> None:
    with (folder / "java").open("wb") as printed:
        os.dup2(printed.fileno(), 1)
    hereish = Terminal(pytest.MonkeyPatch())
    for name, words in json.loads((folder / "commands.json").read_text()).items():
        (folder / f"{name}.json").write_text(json.dumps(hereish(*words)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
