"""The page docs/cli.md, made of the commands themselves.

`python -m hereish.cli._reference > docs/cli.md` renews it.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterable

import click

from hereish.cli import COMMANDS, GROUPS, group
from hereish.cli._options import OTHER

_WIDTH = 110
_ABOUT = """
This page is made of the commands' own help by `python -m hereish.cli._reference`; `hereish COMMAND
--help` says the same. The command line is installed by `pip install 'hereish[cli]'`; `hereish show`
needs `hereish[show]` and Parquet files need `hereish[parquet]`. To begin with, there is a
[tutorial](tutorial.md); the formats are described in [files](files.md).
"""
_COMPLETION = """
The shell can complete commands and options. Put one of these lines, for bash, zsh and fish, into
`~/.bashrc`, `~/.zshrc` or `~/.config/fish/config.fish`:
"""
_SHELLS = """\
* `eval "$(_HEREISH_COMPLETE=bash_source hereish)"`
* `eval "$(_HEREISH_COMPLETE=zsh_source hereish)"`
* `_HEREISH_COMPLETE=fish_source hereish | source`"""
# These make the files that the examples name. All of it is run by a test.
_INPUTS = (
    "hereish sample -o walk.gpx",
    "hereish sample -o taxis.parquet --users 20",
    "hereish sample -o city.csv --users 3",
    "sed 1s/user/phone/ city.csv > fixes.csv",
    "cp fixes.csv true.csv",
    "hereish sample -o geolife.parquet --users 8 --points 400",
    "sed 1s/user,time/trace_id,t/ city.csv > sampled-p0.2.csv",
    "hereish tune -o settings.toml --trials 4 --p 0.5",
    "mkdir traces",
    "cp city.csv traces",
)


def page() -> str:
    """The whole page. It depends on nothing but the commands."""
    top = group()
    ctx = click.Context(top, info_name=top.name, **top.context_settings)
    parts = ["# Command line", _wrapped(_ABOUT)]
    parts += ["The examples read these files:", _indented(_INPUTS)]
    parts += [*_described(ctx), *_commands(), *_options(ctx), *_ending(top.epilog)]
    for name in COMMANDS:
        command = top.get_command(ctx, name)
        below = click.Context(command, parent=ctx, info_name=name)
        parts += [*_described(below), *_options(below), *_ending(command.epilog)]
        if isinstance(command, click.Group):
            for deeper in command.list_commands(below):
                one = click.Context(command.commands[deeper], parent=below, info_name=deeper)
                parts += [*_described(one, "###"), *_options(one)]
    parts += ["## Completion", _wrapped(_COMPLETION), _SHELLS]
    return "\n\n".join(parts) + "\n"


def _described(ctx: click.Context, level: str = "##") -> list[str]:
    """The name of a command, how it is called, and what it does."""
    usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
    words = inspect.cleandoc(ctx.command.help or "").split("\n\n")
    return [f"{level} {ctx.command_path}", f"Usage: `{usage}`", *map(_wrapped, words)]


def _commands() -> list[str]:
    parts = []
    for title, commands in GROUPS.items():
        items = [f"* [{name}](#hereish-{name}): {words}" for name, words in commands.items()]
        parts += [f"**{title}**", "\n".join(items)]
    return parts


def _options(ctx: click.Context) -> list[str]:
    groups: dict[str, list[str]] = {}
    for param in ctx.command.get_params(ctx):
        record = param.get_help_record(ctx)
        if isinstance(param, click.Option) and record is not None:
            groups.setdefault(getattr(param, "group", OTHER), []).append(_item(*record))
    ordered = sorted(groups.items(), key=lambda item: item[0] == OTHER)
    return [part for title, items in ordered for part in (f"**{title}**", "\n".join(items))]


def _item(names: str, words: str) -> str:
    text, _, extra = words.partition("  [")  # where click puts defaults and ranges
    more = f" ({extra.removesuffix(']')})" if extra else ""
    return _wrapped(f"* `{names}`: {text}{more}", "  ")


def _ending(epilog: str | None) -> list[str]:
    """Examples, and what else stands below the options."""
    parts = []
    for block in inspect.cleandoc(epilog or "").split("\n\n"):
        lines = [line.strip() for line in block.splitlines() if line != "\b"]
        if lines[:1] == ["Examples:"]:
            parts += ["Examples:", _indented(lines[1:])]
        elif lines:
            parts.append(_wrapped(" ".join(lines)))
    return parts


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _wrapped(text: str, further: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.stdout.write(page())
