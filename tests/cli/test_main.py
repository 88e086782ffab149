"""The command as a whole: how it starts, its help, and what it says without its packages."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import click
import pytest

import hereish
from hereish import cli
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


def test_the_british_spelling_is_the_same_command() -> None:
    group = cli.group()
    context = click.Context(group)
    assert group.get_command(context, "sanitise") is group.get_command(context, "sanitize")
    assert "sanitise" not in group.list_commands(context)


def test_a_full_disk_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cli, "group", lambda: SimpleNamespace(main=full))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == cli.FAILED
    assert re.search("no space left.*free some", capsys.readouterr().err)
