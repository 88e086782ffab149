"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import hereish.cli as cli
from hereish.cli import _reference
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "cli.md"


def printed(words: list[str], **settings: str) -> str:
    """What a command of our own environment prints."""
    bin_ = Path(sys.executable).parent
    done = subprocess.run(  # noqa: S603  # our own commands
        [str(bin_ / words[0]), *words[1:]],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def sections() -> dict[str, str]:
    """The parts of the page by their headings."""
    parts = re.split(r"^## (.+)\n", PAGE.read_text("utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_is_fresh() -> None:
    fresh = _reference.page() == PAGE.read_text("utf-8")
    assert fresh, "renew it: python -m hereish.cli._reference > docs/cli.md"


def test_it_does_not_depend_on_the_terminal() -> None:
    narrow = printed(["python", "-m", "hereish.cli._reference"], COLUMNS="30", TERM="dumb")
    assert narrow == PAGE.read_text("utf-8")


def test_every_option_of_every_command_is_described() -> None:
    top, found = cli.group(), sections()
    ctx = click.Context(top, info_name="hereish")
    for name in cli.COMMANDS:
        words = found[f"hereish {name}"]
        command = top.get_command(ctx, name)
        assert "Examples:\n\n    " in words, name
        for param in command.params:
            if isinstance(param, click.Option):
                item = re.search(rf"^\* `[^`]*{param.opts[-1]}\b.*`: \S", words, re.M)
                assert item is not None, f"{name} {param.opts}"
                assert _flat(param.help or "it has no help") in _flat(words), f"{name} {param.opts}"
            else:
                assert str(param.metavar) in words, name


def test_defaults_are_told() -> None:
    words = _flat(sections()["hereish sanitize"])
    for option, default in (("level", "ln 10"), ("radius", "100m"), ("window", "day")):
        assert re.search(rf"`--{option} [^*]*\(default: {default}\)", words), option


def test_every_exit_code_is_told() -> None:
    words = _flat(sections()["hereish"])
    codes = re.search(r"Exit codes: [^.]*", words)
    assert codes is not None
    for code in (cli.DONE, cli.FAILED, cli.USAGE_ERROR, cli.DEFECT, cli.INTERRUPTED):
        assert re.search(rf"\b{code} [a-z]", codes.group()), code


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_set_up_as_the_page_says(shell: str) -> None:
    assert f"_HEREISH_COMPLETE={shell}_source hereish" in sections()["Completion"]
    assert f"{shell}_complete" in printed(["hereish"], _HEREISH_COMPLETE=f"{shell}_source")


def test_completion_completes() -> None:
    asked = {"_HEREISH_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "hereish san"}
    assert printed(["hereish"], **asked) == "plain,sanitize\n"


def _flat(text: str) -> str:
    return " ".join(text.split())
