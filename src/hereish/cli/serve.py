"""`hereish serve`: the gateway between a phone and whatever wants its location."""

from __future__ import annotations

import ipaddress
import math
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hereish.cli._gateway_options import (
    NOT_INSTALLED,
    LedgerLocation,
    describe_new_ledger,
    format_ledger_command,
    is_location_given,
    ledger_options,
)
from hereish.cli._messages import warn
from hereish.cli._options import RUNNING, Command, option
from hereish.errors import HereishError, ParameterError

if TYPE_CHECKING:
    from hereish.gateway.ledger.ledger import Ledger

DEFAULT_PORT = 8035
EXAMPLE = """\b
Examples:
  hereish serve --demo
  hereish serve --port 8080
  hereish serve --database postgresql+psycopg://hereish@db.example.org/hereish

\b
It listens on this machine alone unless --host says otherwise. TLS is left to a proxy in front:
see the page about the gateway. It ends when it gets SIGTERM or Ctrl-C, after the requests that
are under way.
"""


@click.command(
    cls=Command, epilog=EXAMPLE, short_help="the gateway: a phone in, a private place out"
)
@option(RUNNING, "--demo", is_flag=True, help="A made-up user and a ledger that is thrown away.")
@option(RUNNING, "--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@option(
    RUNNING,
    "--port",
    type=click.IntRange(1, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on.",
)
@option(
    RUNNING,
    "--rate",
    type=click.FloatRange(0),
    default=20.0,
    show_default=True,
    help="Points per second that each token may send; 0 for no limit.",
)
@option(
    RUNNING,
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Lines of JSON on standard error. None of them has a place in it.",
)
@ledger_options
def command(
    demo: bool,
    host: str,
    port: int,
    rate: float,
    log_level: str,
    location: LedgerLocation,
) -> None:
    """Run the gateway: OwnTracks, Overland, OsmAnd, Traccar Client and GPSLogger report to it, and
    what goes on from it is private. A ledger is made if there is none.
    """
    try:
        from hereish.gateway.http.app import create_app
        from hereish.gateway.http.server import serve
        from hereish.gateway.ledger.ledger import Ledger
        from hereish.gateway.observability import logs
        from hereish.gateway.paths import GatewayPaths
    except ImportError:
        raise ParameterError(NOT_INSTALLED) from None
    _check_port(host, port)
    warning = warning_if_public(host)
    if warning is not None:
        warn(warning)
    logs.configure_logging(log_level)
    folder = Path(tempfile.mkdtemp(prefix="hereish-demo-")) if demo else None
    try:
        if folder is not None:
            if is_location_given():  # the environment is not meant for a demo
                raise ParameterError(
                    "--demo has a ledger of its own: leave out --database, --key-file and --mark"
                )
            os.environ.pop("HEREISH_KEY", None)
            paths = GatewayPaths(
                f"sqlite:///{folder / 'ledger.db'}", folder / "key", folder / "mark"
            )
        else:
            paths = location.paths()
        ledger = Ledger.open(paths)
        if ledger.created and not demo:
            # Not on standard error, where the log is: lines of JSON.
            click.echo(describe_new_ledger(paths))
        click.echo(_set_up_demo(ledger, host, port) if demo else _greeting(ledger, host, port))
        if not serve(create_app(ledger, per_s=rate), host, port):
            raise HereishError(f"the gateway could not start on {host} port {port}")
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _check_port(host: str, port: int) -> None:
    """Before anything is made, and with a message of ours."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as wrong:
        raise HereishError(
            f"cannot listen on {host} port {port}: {wrong.strerror or wrong}; "
            "choose another --host or --port"
        ) from None


def warning_if_public(host: str) -> str | None:
    """A warning if other machines can reach the address."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return None  # it cannot be listened on either, which fails later
    addresses = [ipaddress.ip_address(str(one).partition("%")[0]) for one in found]
    if all((getattr(one, "ipv4_mapped", None) or one).is_loopback for one in addresses):
        return None
    return (
        f"other machines can reach {host}, and what is sent to it, tokens and true places, travels "
        "in the clear: use --host 127.0.0.1 with a proxy that speaks TLS in front, unless a "
        "container or a firewall lets nobody but such a proxy in"
    )


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _greeting(ledger: Ledger, host: str, port: int) -> str:
    from hereish.gateway.admin import accounts

    text = f"hereish listens on {_url(host, port)}, and ends with Ctrl-C."
    if not accounts.list_users(ledger):
        first = format_ledger_command("user add", "NAME", time_zone="Europe/Helsinki")
        text += f" There is no user yet: {first}"
    return text


def _set_up_demo(ledger: Ledger, host: str, port: int) -> str:
    from hereish.gateway.admin import accounts
    from hereish.gateway.ledger.policy import DEFAULT_INTERVAL_S, Policy

    # The default, but for an interval that somebody who tries it out will wait for.
    policy = Policy(math.log(10), 100.0, every_s=DEFAULT_INTERVAL_S, interval_s=10.0)
    accounts.add_user(ledger, "demo", policy)
    token = accounts.new_token(ledger, "demo", "phone", show_release=True)
    at = _url(host, port)
    now = "'\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\"'"
    return (
        f"A user named demo, with a ledger that is thrown away at the end.\n\n"
        f"token: {token}\n\nTry, in another terminal:\n\n"
        f"curl -H 'Authorization: Bearer {token}' "
        f'-d \'{{"lat": 60.1699, "lon": 24.9384, "at": "{now}"}}\' {at}/v1/report\n\n'
        f"OwnTracks: HTTP mode, {at}/owntracks, any user name, the token as the password.\n"
        f"Your releases on a map: {at}/ (sign in with the token)"
    )
