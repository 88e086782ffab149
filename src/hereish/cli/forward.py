"""`hereish forward`: destinations of releases."""

from __future__ import annotations

import json
from dataclasses import dataclass

import click

from hereish.cli._gateway_options import LedgerLocation, ledger_options
from hereish.cli._messages import note
from hereish.cli._options import Command, collect, json_flag, option
from hereish.cli._prompts import read_secret
from hereish.errors import ParameterError

EXAMPLE = """\b
Examples:
  hereish forward add alice http://127.0.0.1:8083/pub --format owntracks --login alice
  hereish forward add alice http://127.0.0.1:5055 --format osmand --device alice
  hereish forward add alice mqtt://127.0.0.1/owntracks/alice/phone --format mqtt
  hereish forward list alice
"""


@click.group(epilog=EXAMPLE, short_help="destinations of releases")
def command() -> None:
    """Send a user's releases on to OwnTracks Recorder, Dawarich, Home Assistant, Traccar,
    PhoneTrack or an MQTT broker. Only the released place, its time, the initials and the noise
    radius leave, and the name of the device at the receiver.
    """


@dataclass(frozen=True)
class ReceiverOptions:
    """What is sent to a receiver, and how it is signed in to."""

    form: str
    device: str | None
    no_accuracy: bool
    login: str | None
    password: bool
    bearer: bool
    headers: tuple[str, ...]


_SENT, _LOGIN = "What is sent", "Signing in"


@command.command(cls=Command)
@click.argument("user", metavar="USER")
@click.argument("address", metavar="URL")
@collect(
    "options",
    ReceiverOptions,
    option(
        _SENT,
        "--format",
        "form",
        type=click.Choice(["owntracks", "overland", "osmand", "mqtt"]),
        required=True,
        help="OwnTracks, Overland or OsmAnd (Traccar) over HTTP, or OwnTracks over MQTT.",
    ),
    option(
        _SENT,
        "--device",
        metavar="ID",
        help="What the receiver knows the device by, such as Traccar's identifier.",
    ),
    option(
        _SENT,
        "--no-accuracy",
        is_flag=True,
        help="Leave out the noise radius, for receivers that hide what is not accurate.",
    ),
    option(_LOGIN, "--login", metavar="NAME", help="User name at the receiver."),
    option(
        _LOGIN,
        "--password",
        is_flag=True,
        help="Ask for the password, or read it from standard input.",
    ),
    option(_LOGIN, "--bearer", is_flag=True, help="Ask for a token instead, or read it."),
    option(
        _LOGIN,
        "--header",
        "headers",
        multiple=True,
        metavar="NAME:VALUE",
        help="Sent along, such as X-Limit-U:alice. More than once.",
    ),
)
@ledger_options
def add(user: str, address: str, options: ReceiverOptions, location: LedgerLocation) -> None:
    """Send a user's releases from now on to URL, too. What is needed to sign in there is kept
    encrypted with the key of the ledger.
    """
    headers = dict(_parse_header(header) for header in options.headers)
    password = read_secret("Password") if options.password else None
    token = read_secret("Token") if options.bearer else None
    with location.open() as ledger:
        from hereish.gateway.admin import destinations

        number = destinations.add_destination(
            ledger,
            user,
            address,
            options.form,
            username=options.login,
            password=password,
            bearer=token,
            headers=headers or None,
            device=options.device,
            accuracy=not options.no_accuracy,
        )
        [added] = [one for one in destinations.list_destinations(ledger, user) if one.id == number]
    click.echo(f"{number}: {added.format} to {added.address}")
    if added.note:
        note(added.note)


@command.command("list", cls=Command)
@click.argument("user", metavar="USER")
@json_flag()
@ledger_options
def list_(user: str, as_json: bool, location: LedgerLocation) -> None:
    """List where a user's releases go, what waits, and why."""
    with location.open() as ledger:
        from hereish.gateway.admin import destinations

        found = destinations.list_destinations(ledger, user)
    if as_json:
        click.echo(json.dumps([one._asdict() for one in found], indent=2, ensure_ascii=False))
        return
    for one in found:
        failure = f"; {one.tries} tries failed: {one.trouble}" if one.tries else ""
        click.echo(f"{one.id}: {one.format} to {one.address}, {one.waiting} waiting{failure}")
    if not found:
        click.echo("nothing is forwarded: hereish forward add USER URL --format …", err=True)


@command.command(cls=Command)
@click.argument("user", metavar="USER")
@click.argument("number", type=int, metavar="NUMBER")
@ledger_options
def remove(user: str, number: int, location: LedgerLocation) -> None:
    """Send nothing there any more, not even what waits. NUMBER is that of hereish forward list."""
    with location.open() as ledger:
        from hereish.gateway.admin import destinations

        destinations.remove_destination(ledger, user, number)
    click.echo("removed")


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise ParameterError(f"a header is NAME:VALUE, such as X-Limit-U:alice, found {text!r}")
    return name.strip(), value.strip()
