"""Questions to whoever runs a command."""

from __future__ import annotations

import sys

import click

from hereish.errors import HereishError, ParameterError


def read_secret(prompt: str) -> str:
    """Something that is typed unseen, or the first line of standard input."""
    if sys.stdin.isatty():
        typed: str = click.prompt(prompt, hide_input=True)
        return typed
    return sys.stdin.readline().rstrip("\r\n")


def require_consent(question: str, yes: bool) -> None:
    """Go on only after a yes, or with --yes."""
    if yes:
        return
    try:
        agreed = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise ParameterError(
            "this needs an answer and standard input has none; --yes does it without asking"
        ) from None
    if not agreed:
        raise HereishError("nothing was done")
