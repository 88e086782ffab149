"""Commands of ours that are printed for somebody to run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import click
from click.core import ParameterSource

_PASSWORD = re.compile(r"(://[^:/@]*):[^@]*@")


def is_on_command_line(name: str) -> bool:
    """Whether the option is on the command line, and not from the environment or a default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def options_on_command_line() -> dict[str, str]:
    """The options on the command line by their names in Python; flags are not among them.

    What the environment sets holds for the next command too, and is not repeated; nor is a password
    in an address, since this is for printing.
    """
    ctx = click.get_current_context()
    return {
        param.name: _PASSWORD.sub(r"\1:***@", str(ctx.params[param.name]))
        for param in ctx.command.params
        if isinstance(param, click.Option)
        and param.name is not None
        and not param.is_flag
        and is_on_command_line(param.name)
    }


def format_command(
    command: str, arguments: Sequence[str], options: Mapping[str, str | None]
) -> str:
    """A command of ours, quoted for a shell; options that are None are left out."""
    given = [
        part
        for name, value in options.items()
        if value is not None
        for part in (f"--{name.replace('_', '-')}", value)
    ]
    dashed = any(argument.startswith("-") for argument in arguments)
    rest = [*given, "--", *arguments] if dashed else [*arguments, *given]
    return shlex.join(["hereish", *command.split(), *rest])
