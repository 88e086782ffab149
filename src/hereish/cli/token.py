"""`hereish token`: credentials of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hereish.cli import _units
from hereish.cli._gateway_options import LedgerLocation, ledger_options
from hereish.cli._options import Command, option
from hereish.cli._prompts import read_secret

if TYPE_CHECKING:
    from hereish.gateway.admin.accounts import PrimaryDevice

EXAMPLE = """\b
Examples:
  hereish token new alice --device phone
  hereish token new alice --device tablet --show-release
  hereish token primary alice phone --silence 2h
"""


@click.group(epilog=EXAMPLE, short_help="credentials of devices")
def command() -> None:
    """Make and revoke tokens. A token belongs to one device of one user; it is shown once.

    One device of a user is the primary one, and its reports count. Those of other devices count
    only when it has been silent for a while; otherwise they get the last release, for free.
    """


@command.command(cls=Command)
@click.argument("user", metavar="USER")
@option("The device", "--device", required=True, metavar="NAME", help="What to call it.")
@option(
    "The device",
    "--show-release",
    is_flag=True,
    help="Answer OwnTracks with what was released, as a friend on its map.",
)
@option(
    "The device",
    "--passphrase",
    is_flag=True,
    help="Ask for the encryption key of the OwnTracks app, or read it from standard input.",
)
@option(
    "The device",
    "--primary",
    is_flag=True,
    help="Choose it as the primary device. Unless one was chosen it is the one with the newest "
    "token.",
)
@ledger_options
def new(
    user: str,
    device: str,
    show_release: bool,
    passphrase: bool,
    primary: bool,
    location: LedgerLocation,
) -> None:
    """Make a token for a device, and print it. It cannot be shown again."""
    secret = read_secret("OwnTracks encryption key") if passphrase else None
    with location.open() as ledger:
        from hereish.gateway.admin import accounts
        from hereish.gateway.http.protocols import owntracks

        if secret is not None:
            owntracks.check_passphrase(secret)
        token = accounts.new_token(
            ledger,
            user,
            device,
            passphrase=secret,
            show_release=show_release,
            primary=primary,
        )
        first = accounts.primary_device(ledger, user)
    click.echo(token)
    click.echo("Keep it like a password: it is not shown again.", err=True)
    click.echo(_describe_primary(user, first), err=True)


@command.command(cls=Command)
@click.argument("user", metavar="USER")
@click.argument("device", metavar="DEVICE")
@option(
    "The device",
    "--silence",
    metavar="DURATION",
    help="How long it must be silent before other devices count, such as 2h. If never "
    "given it is twice the interval between reports, and at least an hour. 0: all devices count "
    "alike.",
)
@ledger_options
def primary(user: str, device: str, silence: str | None, location: LedgerLocation) -> None:
    """Choose the device whose reports count. It applies from the next report on."""
    silence_s = None
    if silence is not None:
        silence_s = 0.0 if silence == "0" else _units.duration_s(silence)
    with location.open() as ledger:
        from hereish.gateway.admin import accounts

        first = accounts.set_primary(ledger, user, device, silence_s=silence_s)
    click.echo(_describe_primary(user, first))


@command.command(cls=Command)
@click.argument("token", metavar="TOKEN")
@ledger_options
def revoke(token: str, location: LedgerLocation) -> None:
    """Never take a token again. TOKEN is its id, as hereish user show lists it, or all of it."""
    with location.open() as ledger:
        from hereish.gateway.admin import accounts

        accounts.revoke_token(ledger, token)
    click.echo("revoked")


def _describe_primary(user: str, first: PrimaryDevice) -> str:
    if first.silence_s == 0.0:
        return f"All devices of {user} count alike."
    return (
        f"The primary device of {user} is {first.device}: its reports count, and those of others "
        f"only when it has been silent for {first.silence_s / 60:g} min."
    )
