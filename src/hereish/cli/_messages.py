"""Notes and warnings: on standard error, so that standard output stays the result."""

from __future__ import annotations

import click


def note(text: str) -> None:
    """Something that is worth knowing."""
    click.echo(f"hereish: note: {text}", err=True)


def warn(text: str) -> None:
    """Something that is probably not meant; it is done all the same."""
    click.echo(f"hereish: warning: {text}", err=True)
