"""The command as a whole: how it starts, its help, and what it says without its packages."""

from __future__ import annotations

import subprocess
import sys

import hereish
from tests.support.terminal import in_a_process


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # our own interpreter and our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


def test_python_m_hereish_is_the_command() -> None:
    done = subprocess.run(  # our own interpreter and our own module
        [sys.executable, "-m", "hereish", "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"hereish, version {hereish.__version__}\n"


def test_help_names_every_command_without_importing_it() -> None:
    assert "plan" in in_a_process("--help").stdout
    listed = python(
        "import sys, hereish.cli as c\n"
        "sys.argv = ['hereish', '--help']\n"
        "try: c.main()\n"
        "except SystemExit: print(sorted({'numpy', 'hereish.cli.plan'} & set(sys.modules)))"
    )
    assert listed.returncode == 0, listed.stderr
    assert "hereish.cli.plan" not in listed.stdout.splitlines()[-1]


def test_without_click_it_says_what_to_install() -> None:
    done = python("import sys; sys.modules['click'] = None; from hereish.cli import main; main()")
    assert done.returncode == 2
    assert "pip install 'hereish[cli]'" in done.stderr
