"""`hereish forward`: where releases go on to."""

from __future__ import annotations

import json

import click

from hereish.cli import _gateway_options, _options
from hereish.cli._gateway_options import Where
from hereish.errors import ParameterError

EXAMPLE = """\b
Examples:
  hereish forward add alice http://127.0.0.1:8083/pub --format owntracks --login alice
  hereish forward add alice http://127.0.0.1:5055 --format osmand --device alice
  hereish forward add alice mqtt://127.0.0.1/owntracks/alice/phone --format mqtt
  hereish forward list alice
"""


@click.group(epilog=EXAMPLE, short_help="where releases go on to")
def command() -> None:
    """Send a user's releases on to OwnTracks Recorder, Dawarich, Home Assistant, Traccar,
    PhoneTrack or an MQTT broker. Only the released place, its time, the initials and the noise
    radius leave, and what the receiver is told to call the device.
    """


@command.command(cls=_options.Command)
@click.argument("user", metavar="USER")
@click.argument("address", metavar="URL")
@_options.option(
    "What is sent",
    "--format",
    "form",
    type=click.Choice(["owntracks", "overland", "osmand", "mqtt"]),
    required=True,
    help="OwnTracks, Overland or OsmAnd (Traccar) over HTTP, or OwnTracks over MQTT.",
)
@_options.option(
    "What is sent",
    "--device",
    metavar="ID",
    help="What the receiver knows the device by, such as Traccar's identifier.",
)
@_options.option(
    "What is sent",
    "--no-accuracy",
    is_flag=True,
    help="Leave out the noise radius, for receivers that hide what is not accurate.",
)
@_options.option("Signing in", "--login", metavar="NAME", help="User name at the receiver.")
@_options.option(
    "Signing in",
    "--password",
    is_flag=True,
    help="Ask for the password, or read it from standard input.",
)
@_options.option(
    "Signing in", "--bearer", is_flag=True, help="Ask for a token instead, or read it."
)
@_options.option(
    "Signing in",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="Sent along, such as X-Limit-U:alice. More than once.",
)
@_gateway_options.where
def add(
    user: str,
    address: str,
    form: str,
    device: str | None,
    no_accuracy: bool,
    login: str | None,
    password: bool,
    bearer: bool,
    headers: tuple[str, ...],
    where: Where,
) -> None:
    """Send a user's releases from now on to URL, too. What is needed to sign in there is kept
    encrypted with the key of the ledger.
    """
    told = dict(_header(header) for header in headers)
    secret = _gateway_options.secret("Password") if password else None
    token = _gateway_options.secret("Token") if bearer else None
    with where.opened() as ledger:
        from hereish.gateway.admin import destinations

        number = destinations.add_destination(
            ledger,
            user,
            address,
            form,
            username=login,
            password=secret,
            bearer=token,
            headers=told or None,
            device=device,
            accuracy=not no_accuracy,
        )
        [added] = [one for one in destinations.list_destinations(ledger, user) if one.id == number]
    click.echo(f"{number}: {added.format} to {added.address}")
    if added.note:
        click.echo(f"hereish: note: {added.note}", err=True)


@command.command("list", cls=_options.Command)
@click.argument("user", metavar="USER")
@_options.option("Other", "--json", "as_json", is_flag=True, help="The same for programs.")
@_gateway_options.where
def list_(user: str, as_json: bool, where: Where) -> None:
    """List where a user's releases go, what waits, and why."""
    with where.opened() as ledger:
        from hereish.gateway.admin import destinations

        found = destinations.list_destinations(ledger, user)
    if as_json:
        click.echo(json.dumps([one._asdict() for one in found], indent=2, ensure_ascii=False))
        return
    for one in found:
        trouble = f"; {one.tries} tries failed: {one.trouble}" if one.tries else ""
        click.echo(f"{one.id}: {one.format} to {one.address}, {one.waiting} waiting{trouble}")
    if not found:
        click.echo("nothing is forwarded: hereish forward add USER URL --format …", err=True)


@command.command(cls=_options.Command)
@click.argument("user", metavar="USER")
@click.argument("number", type=int, metavar="NUMBER")
@_gateway_options.where
def remove(user: str, number: int, where: Where) -> None:
    """Send nothing there any more, not even what waits. NUMBER is as hereish forward list says."""
    with where.opened() as ledger:
        from hereish.gateway.admin import destinations

        destinations.remove_destination(ledger, user, number)
    click.echo("removed")


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise ParameterError(f"a header is NAME:VALUE, such as X-Limit-U:alice, found {text!r}")
    return name.strip(), value.strip()
