"""Run the command as a shell would, in this process or in one of its own."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from hereish.cli import main

PROGRAM = [sys.executable, "-m", "hereish"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Terminal:
    """Calls `hereish` with arguments, in this process."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def __call__(self, *args: object, stdin: str = "") -> Done:
        streams = {
            "stdin": io.TextIOWrapper(io.BytesIO(stdin.encode())),
            "stdout": io.TextIOWrapper(io.BytesIO(), write_through=True),
            "stderr": io.TextIOWrapper(io.BytesIO(), write_through=True),
        }
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", ["hereish", *map(str, args)])
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            patch.setattr("signal.signal", lambda *_: None)  # this process is pytest's
            patch.setattr("warnings.showwarning", None)  # put back what main sets
            try:
                main()
                code = 0
            except SystemExit as leaving:
                code = int(leaving.code or 0)
        out, err = (streams[n].buffer.getvalue().decode() for n in ("stdout", "stderr"))
        return Done(code, out, err)


def output_of(done: Done) -> str:
    """What a command that ended well printed."""
    assert done.code == 0, done.err
    return done.out


def commands_in(text: str) -> list[list[str]]:
    """The commands that a text contains, each as a shell would take it apart."""
    return [
        shlex.split(found) for found in re.findall(r"\bhereish (?:plan|token|user) .*$", text, re.M)
    ]


def in_a_process(
    *args: object, stdin: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Calls `hereish` as its own process."""
    return subprocess.run(  # noqa: S603  # our own program
        [*PROGRAM, *map(str, args)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )
