"""Starts the programs beside this file whose names begin with `spark_`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

# Jobs of tests are over before code that was compiled with more effort would pay off.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(**more: str) -> dict[str, str]:
    """For a process that starts Spark: its Python workers find our modules too."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_QUICK_JAVA}".strip(),
        **more,
    }


def start(program: str, log: Path, *words: str, **more: str) -> subprocess.Popen[bytes]:
    """With what it and Spark say in a file, and more variables in its environment."""
    command = [sys.executable, "-m", f"tests.support.{program}", *words]
    with log.open("wb") as said:
        return subprocess.Popen(  # noqa: S603  # our own
            command, stdout=said, stderr=said, env=environment(**more), cwd=ROOT
        )


def finish(process: subprocess.Popen[bytes], log: Path, patience_s: float = 300.0) -> None:
    """Wait for it; if it failed, say how."""
    try:
        ended = process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert ended == 0, log.read_text(errors="replace")[-5000:]
