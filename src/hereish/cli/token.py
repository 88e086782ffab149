"""`hereish token`: what a device signs in with."""

from __future__ import annotations

import click

from hereish.cli import gateway_options, options
from hereish.cli.gateway_options import Where

EXAMPLE = """\b
Examples:
  hereish token new alice --device phone
  hereish token new alice --device tablet --show-release
"""


@click.group(epilog=EXAMPLE, short_help="what a device signs in with")
def command() -> None:
    """Make and revoke tokens. A token belongs to one device of one user; it is shown once."""


@command.command(cls=options.Command)
@click.argument("user", metavar="USER")
@options.option("The device", "--device", required=True, metavar="NAME", help="What to call it.")
@options.option(
    "The device",
    "--show-release",
    is_flag=True,
    help="Answer OwnTracks with what was released, as a friend on its map.",
)
@options.option(
    "The device",
    "--passphrase",
    is_flag=True,
    help="Ask for the encryption key of the OwnTracks app, or read it from standard input.",
)
@gateway_options.where
def new(
    user: str,
    device: str,
    show_release: bool,
    passphrase: bool,
    where: Where,
) -> None:
    """Make a token for a device, and print it. It cannot be shown again."""
    secret = gateway_options.secret("OwnTracks encryption key") if passphrase else None
    with where.opened() as ledger:
        from hereish.gateway import accounts
        from hereish.gateway.protocols import owntracks

        if secret is not None:
            owntracks.check_passphrase(secret)
        token = accounts.new_token(
            ledger, user, device, passphrase=secret, show_release=show_release
        )
    click.echo(token)
    click.echo("Keep it like a password: it is not shown again.", err=True)


@command.command(cls=options.Command)
@click.argument("token", metavar="TOKEN")
@gateway_options.where
def revoke(token: str, where: Where) -> None:
    """Never take a token again. TOKEN is its id, as hereish user show lists it, or all of it."""
    with where.opened() as ledger:
        from hereish.gateway import accounts

        accounts.revoke_token(ledger, token)
    click.echo("revoked")
