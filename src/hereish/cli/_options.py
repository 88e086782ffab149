"""Options in groups: the help shows the groups, and a command gets each group as one value."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click

OTHER = "Other"
RUNNING = "How it runs"
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class Option(click.Option):
    """An option that belongs to a group."""

    def __init__(
        self, *names: Any, group: str = OTHER, bare: str | None = None, **settings: Any
    ) -> None:
        super().__init__(*names, **settings)
        self.group = group
        self.bare = bare  # its value where it is given without one; others follow a "="


def options_by_group(
    command: click.Command, ctx: click.Context
) -> list[tuple[str, list[tuple[str, str]]]]:
    """The help of all options, with the ungrouped ones last."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if isinstance(param, click.Option) and record is not None:
            groups.setdefault(getattr(param, "group", OTHER), []).append(record)
    return sorted(groups.items(), key=lambda item: item[0] == OTHER)


class Command(click.Command):
    """A command whose help shows its options by group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        bare = {
            name: param.bare
            for param in self.params
            if isinstance(param, Option) and param.bare is not None
            for name in param.opts
        }
        end = args.index("--") if "--" in args else len(args)
        # Not left to click, which would take the argument that follows for the value.
        given = [f"{arg}={bare[arg]}" if arg in bare else arg for arg in args[:end]]
        return super().parse_args(ctx, given + args[end:])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, records in options_by_group(self, ctx):
            with formatter.section(group):
                formatter.write_dl(records)


def option(group: str, *names: str, **settings: Any) -> Decorator:
    """Like click.option, in a group."""
    return click.option(*names, cls=Option, group=group, **settings)


def combine(*options: Decorator) -> Decorator:
    """Several options as one decorator, in this order."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for one in reversed(options):
            function = one(function)
        return function

    return decorate


def collect(parameter: str, into: type, *options: Decorator) -> Decorator:
    """Options that a command gets as one value, as the parameter of this name.

    `into` is a dataclass with a field per option; fields with defaults may have no option.
    """
    names = [field.name for field in fields(into)]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def collected(**values: Any) -> None:
            value = into(**{name: values.pop(name) for name in names if name in values})
            function(**{parameter: value}, **values)

        return combine(*options)(collected)

    return decorate


def output(metavar: str, help_text: str, *, folder: bool = False) -> Decorator:
    """Where a command writes to."""
    return option(
        "Where to",
        "-o",
        "--output",
        "out",
        required=True,
        metavar=metavar,
        type=click.Path(file_okay=not folder),
        help=help_text,
    )


def json_flag(help_text: str = "The same for programs.", group: str = OTHER) -> Decorator:
    """Print JSON."""
    return option(group, "--json", "as_json", is_flag=True, help=help_text)


YES = option(OTHER, "--yes", is_flag=True, help="Do it without asking.")
QUIET = option(RUNNING, "--quiet", is_flag=True, help="Print nothing unless it fails.")


@dataclass(frozen=True)
class RunOptions:
    """How a long command runs."""

    jobs: int | None
    quiet: bool
    as_json: bool

    @property
    def threads(self) -> int:
        """As many as there are cores if nothing else is given."""
        return self.jobs or os.cpu_count() or 1


def run_options(jobs_help: str, json_help: str) -> Decorator:
    """The command gets `run`."""
    jobs = option(RUNNING, "--jobs", type=click.IntRange(1), help=jobs_help)
    return collect("run", RunOptions, jobs, QUIET, json_flag(json_help, RUNNING))


def study_seed(help_text: str) -> Decorator:
    """A fixed seed unless another one is given: a study releases nothing."""
    return option(RUNNING, "--seed", type=int, default=1, show_default=True, help=help_text)
