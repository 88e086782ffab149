"""`hereish ledger`: looking after the gateway's ledger."""

from __future__ import annotations

import json
import time

import click

from hereish.cli import gateway_options, options, units
from hereish.cli.gateway_options import Where

EXAMPLE = """\b
Examples:
  hereish ledger status
  hereish ledger prune --older-than 90d
  hereish ledger accept --yes
"""
_JSON = options.option("Other", "--json", "as_json", is_flag=True, help="The same for programs.")


@click.group(epilog=EXAMPLE, short_help="looking after the gateway's ledger")
def command() -> None:
    """Look at the ledger, forget old releases, and go on after a restore."""


@command.command(cls=options.Command)
@_JSON
@gateway_options.where
def status(where: Where, as_json: bool) -> None:
    """Say how much is in the ledger, and whether it stands at its high-water mark."""
    with where.opened(check=False) as ledger:
        from hereish.gateway import upkeep

        found = upkeep.status(ledger)
    if as_json:
        click.echo(json.dumps(found._asdict() | {"restored": found.restored}, indent=2))
        return
    click.echo(
        f"{found.users} users, {found.tokens} tokens, {found.entries} entries, "
        f"{found.waiting} releases to be forwarded; the last entry is {found.last}"
    )
    if found.restored:
        click.echo(
            f"it had come to entry {found.mark} before, so it was restored from a backup. Nothing "
            "is released until: hereish ledger accept"
        )


@command.command(cls=options.Command)
@options.option(
    "What is forgotten",
    "--older-than",
    required=True,
    metavar="DURATION",
    help="Such as 90d: releases for earlier times, ids of reports and counts.",
)
@gateway_options.where
def prune(older_than: str, where: Where) -> None:
    """Forget old releases. Budgets stay as they are; a report that is sent again after its release
    was forgotten gets nothing, and costs nothing.
    """
    age_s = units.duration_s(older_than)
    with where.opened() as ledger:
        from hereish.gateway import upkeep

        gone = upkeep.prune(ledger, time.time() - age_s)
    click.echo(f"forgot {', '.join(f'{count} {name}' for name, count in gone.items())}")


@command.command(cls=options.Command)
@options.option("Other", "--yes", is_flag=True, help="Do it without asking.")
@gateway_options.where
def accept(yes: bool, where: Where) -> None:
    """Go on with a ledger that was restored from a backup. What was spent after the backup is not
    in it, so every window that has begun counts as spent, for all users.
    """
    if not yes:
        click.confirm(
            "Take the present window of every user as spent, and go on from the next?", abort=True
        )
    with where.opened(check=False) as ledger:
        from hereish.gateway import upkeep

        closed = upkeep.accept(ledger)
    click.echo(f"closed the present window of {closed} user(s); it goes on with the next one")
