"""The page docs/cli.md, made from the commands themselves.

`python -m hereish.cli._reference > docs/cli.md` renews it.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterable

import click

from hereish.cli import COMMANDS, GROUPS, group
from hereish.cli._options import options_by_group

_WIDTH = 110
_ABOUT = """
This page is made from the commands' own help by `python -m hereish.cli._reference`; it is the same
as `hereish COMMAND --help`. The command line is installed by `pip install 'hereish[cli]'`; `hereish
show` needs `hereish[show]` and Parquet files need `hereish[parquet]`. To begin with, there is a
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
    "hereish sanitize city.csv -o observed.csv --time-zone Europe/Helsinki",
    "hereish sanitize walk.gpx -o observed.gpx --preset paper-utility --accuracy 3km",
    "mkdir traces",
    "cp city.csv traces",
)


def page() -> str:
    """The page. It depends on nothing but the commands."""
    top = group()
    ctx = click.Context(top, info_name=top.name, **top.context_settings)
    parts = ["# Command line", _wrap(_ABOUT)]
    parts += ["The examples read these files:", _indent(_INPUTS)]
    parts += [
        *_format_usage(ctx),
        *_list_commands(),
        *_list_options(ctx),
        *_format_epilog(top.epilog),
    ]
    for name in COMMANDS:
        command = top.get_command(ctx, name)
        below = click.Context(command, parent=ctx, info_name=name)
        parts += [*_format_usage(below), *_list_options(below), *_format_epilog(command.epilog)]
        if isinstance(command, click.Group):
            for deeper in command.list_commands(below):
                one = click.Context(command.commands[deeper], parent=below, info_name=deeper)
                parts += [*_format_usage(one, "###"), *_list_options(one)]
    parts += ["## Completion", _wrap(_COMPLETION), _SHELLS]
    return "\n\n".join(parts) + "\n"


def _format_usage(ctx: click.Context, level: str = "##") -> list[str]:
    """The name of a command, how it is called, and what it does."""
    usage = " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
    text = inspect.cleandoc(ctx.command.help or "").split("\n\n")
    return [f"{level} {ctx.command_path}", f"Usage: `{usage}`", *map(_wrap, text)]


def _list_commands() -> list[str]:
    parts = []
    for title, commands in GROUPS.items():
        items = [f"* [{name}](#hereish-{name}): {text}" for name, text in commands.items()]
        parts += [f"**{title}**", "\n".join(items)]
    return parts


def _list_options(ctx: click.Context) -> list[str]:
    parts = []
    for title, records in options_by_group(ctx.command, ctx):
        parts += [f"**{title}**", "\n".join(_format_option(*record) for record in records)]
    return parts


def _format_option(names: str, text: str) -> str:
    body, _, extra = text.partition("  [")  # where click puts defaults and ranges
    more = f" ({extra.removesuffix(']')})" if extra else ""
    return _wrap(f"* `{names}`: {body}{more}", "  ")


def _format_epilog(epilog: str | None) -> list[str]:
    """Examples, and what else stands below the options."""
    parts = []
    for block in inspect.cleandoc(epilog or "").split("\n\n"):
        lines = [line.strip() for line in block.splitlines() if line != "\b"]
        if lines[:1] == ["Examples:"]:
            parts += ["Examples:", _indent(lines[1:])]
        elif lines:
            parts.append(_wrap(" ".join(lines)))
    return parts


def _indent(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _wrap(text: str, further: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.stdout.write(page())
