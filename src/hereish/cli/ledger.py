"""`hereish ledger`: maintenance of the gateway's ledger."""

from __future__ import annotations

import json
import time

import click

from hereish.cli import _units
from hereish.cli._formatting import format_count, format_time
from hereish.cli._gateway_options import LedgerLocation, ledger_options
from hereish.cli._options import YES, Command, json_flag, option
from hereish.cli._prompts import require_consent

EXAMPLE = """\b
Examples:
  hereish ledger status
  hereish ledger prune --older-than 90d
  hereish ledger jobs
  hereish ledger accept --yes
  hereish ledger mark --yes
"""


@click.group(epilog=EXAMPLE, short_help="maintenance of the gateway's ledger")
def command() -> None:
    """Look at the ledger, forget old releases, and go on after a restore."""


@command.command(cls=Command)
@json_flag()
@ledger_options
def status(location: LedgerLocation, as_json: bool) -> None:
    """Show how much is in the ledger, and whether it stands at its high-water mark."""
    with location.open(check=False) as ledger:
        from hereish.gateway.admin import maintenance

        found = maintenance.read_status(ledger)
    if as_json:
        judged = {"restored": found.restored, "set_back": found.set_back}
        click.echo(json.dumps(found._asdict() | judged, indent=2))
        return
    click.echo(
        f"{found.users} users, {found.tokens} tokens, {found.entries} entries, "
        f"{found.waiting} releases to be forwarded; the last entry is {found.last}"
    )
    if found.lost:
        click.echo(
            "its high-water mark was missing or damaged. If this is a backup, or you do not know: "
            "hereish ledger accept. If it is the ledger as it was left: hereish ledger mark"
        )
    elif found.set_back:
        click.echo(
            "a client knows a later state of it: it was set back together with its high-water "
            "mark. Nothing is released until: hereish ledger accept"
        )
    elif found.another_era:
        click.echo(
            "it and its high-water mark are from before and after a 'hereish ledger accept': "
            "'hereish serve' says what to do"
        )
    elif found.restored:
        click.echo(
            f"it had come to entry {found.mark} before, so it was restored from a backup. Nothing "
            "is released until: hereish ledger accept"
        )


@command.command(cls=Command)
@option(
    "What is forgotten",
    "--older-than",
    required=True,
    metavar="DURATION",
    help="Such as 90d: releases for earlier times, those that wait to be forwarded too, ids "
    "of reports and counts.",
)
@ledger_options
def prune(older_than: str, location: LedgerLocation) -> None:
    """Forget old releases. Budgets stay as they are; a report that is sent again after its release
    was forgotten gets nothing, and costs nothing.
    """
    age_s = _units.duration_s(older_than)
    with location.open() as ledger:
        from hereish.gateway.admin import maintenance

        gone = maintenance.prune(ledger, time.time() - age_s)
    click.echo(f"forgot {', '.join(f'{count} {name}' for name, count in gone.items())}")


@command.command(cls=Command)
@json_flag()
@ledger_options
def jobs(location: LedgerLocation, as_json: bool) -> None:
    """List the jobs that pay from the budgets of the ledger's users, and what they have taken."""
    with location.open() as ledger:
        from hereish.gateway.ledger.jobs import list_jobs

        found = list_jobs(ledger)
    if as_json:
        click.echo(json.dumps([job._asdict() for job in found], indent=2, ensure_ascii=False))
        return
    for job in found:
        state = "not paid for yet: all that it has reserved counts as spent"
        if job.settled_s is not None:
            share = job.taken / job.reserved if job.reserved else 0.0
            state = f"paid {format_time(job.settled_s)}, {share:.0%} of what it had reserved"
        windows, users = format_count(job.windows, "window"), format_count(job.users, "user")
        click.echo(f"{job.name}  begun {format_time(job.created_s)}, {windows} of {users}; {state}")
    if not found:
        click.echo("no job yet: hereish sanitize IN -o OUT --ledger URL --job NAME", err=True)


@command.command(cls=Command)
@click.argument("job", metavar="JOB")
@YES
@ledger_options
def cancel(job: str, yes: bool, location: LedgerLocation) -> None:
    """Return what a job that has died had reserved. Should it still run, it can publish nothing.
    Its unfinished output (OUT.unpaid-…) must not be used.
    """
    require_consent(f"Return all that the job {job} has reserved?", yes)
    with location.open() as ledger:
        from hereish.gateway.ledger.jobs import cancel_job

        cancel_job(ledger, job)
    click.echo(f"cancelled {job}: what it had reserved is there again")


@command.command(cls=Command)
@YES
@option("Other", "--anyway", is_flag=True, help="Even if the ledger stands at its high-water mark.")
@ledger_options
def accept(yes: bool, anyway: bool, location: LedgerLocation) -> None:
    """Go on with a ledger that was restored from a backup. What was spent after the backup is not
    in it, so every window that has begun counts as spent, for all users; a user with the window
    none has no other.
    """
    with location.open(check=False) as ledger:
        from hereish.gateway.admin import maintenance

        if not (maintenance.read_status(ledger).restored or anyway):
            click.echo("the ledger stands at its high-water mark: nothing to accept")
            return
    require_consent("Take the present window of every user as spent, and go on from the next?", yes)
    with location.open(check=False) as ledger:
        from hereish.gateway.admin import maintenance

        closed = maintenance.accept_restored(ledger)
    click.echo(f"closed the present window of {closed} user(s); it goes on with the next one")


@command.command(cls=Command)
@YES
@ledger_options
def mark(yes: bool, location: LedgerLocation) -> None:
    """Make a new high-water mark for a ledger that is no backup: on another machine that serves the
    same database, or after the database has moved.
    """
    require_consent("Is this the ledger as it was left, and not a backup of it?", yes)
    with location.open(check=False) as ledger:
        from hereish.gateway.admin import maintenance

        last = maintenance.reset_mark(ledger)
    click.echo(f"the mark is at entry {last}")
