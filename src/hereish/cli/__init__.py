"""The `hereish` command: thin over the library, one file a command.

Commands are imported only when they are run, so that `hereish --help` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module

# Exit codes: 0 done, 1 it could not be done, 2 it was asked wrongly.
COMMANDS = {"plan": "what a setting means, before it is used"}


def main() -> None:
    """The entry point; says what to install where click is missing."""
    try:
        import click
    except ImportError:
        sys.stderr.write("the command line needs more: pip install 'hereish[cli]'\n")
        raise SystemExit(2) from None

    class Lazy(click.Group):
        """Lists commands by their one-line help and imports the one that is asked for."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in COMMANDS:
                return None
            command = import_module(f"hereish.cli.{cmd_name}").command
            return command if isinstance(command, click.Command) else None

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):
                formatter.write_dl(list(COMMANDS.items()))

    from hereish.errors import HereishError

    group = Lazy(
        name="hereish",
        help="Report roughly where somebody is, within a privacy budget.",
        epilog='Completion: eval "$(_HEREISH_COMPLETE=bash_source hereish)" in bash; zsh and fish '
        "likewise.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    click.version_option(package_name="hereish")(group)
    try:
        group.main(prog_name="hereish")
    except HereishError as wrong:
        sys.stderr.write(f"hereish: {wrong}\n")
        raise SystemExit(2) from None
