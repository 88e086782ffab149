"""What the commands of the gateway share: where its ledger is, and what a policy is made of."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hereish.cli import _options, _units
from hereish.errors import HereishError, ParameterError
from hereish.evaluation import settings as tuned

if TYPE_CHECKING:
    from hereish.gateway.ledger.ledger import Ledger
    from hereish.gateway.ledger.policy import Policy
    from hereish.gateway.paths import GatewayPaths


class Where(NamedTuple):
    """Where somebody said the ledger is."""

    database: str | None
    key_file: str | None
    mark: str | None

    def places(self) -> GatewayPaths:
        """What was said, or the usual places."""
        from_said, _ = _gateway()
        found: GatewayPaths = from_said(*self)
        return found

    @contextmanager
    def opened(self, *, check: bool = True) -> Iterator[Ledger]:
        """The ledger for one command."""
        _, ledger_class = _gateway()
        where = self.places()
        ledger = ledger_class.open(where, check=check, pool=1)
        if ledger.created:
            click.echo(f"hereish: note: {made_new(where)}", err=True)
        try:
            yield ledger
        finally:
            ledger.close()


def made_new(where: GatewayPaths) -> str:
    """Where the parts of a new ledger are."""
    if os.environ.get("HEREISH_KEY") is not None:
        key = "its key is that of HEREISH_KEY"
    else:
        key = f"its key is {where.key_file}"
    return (
        f"made a new ledger: {database_shown(where.database)}; {key}, and its high-water mark is "
        f"{where.mark_file}. Without the key the ledger cannot be used: back up the key apart from "
        "the ledger, and the mark not at all"
    )


def database_shown(url: str) -> str:
    """The file of SQLite, or the address without its password."""
    from sqlalchemy import make_url

    address = make_url(url)
    if address.get_backend_name() == "sqlite" and address.database:
        return address.database
    return address.render_as_string(hide_password=True)


def hint(words: str, *arguments: str, **options_: str) -> str:
    """Another command for the same ledger, as a shell takes it."""
    here = {name: value for name, value in _options.said().items() if name in Where._fields}
    return _options.command_line(words, arguments, options_ | here)


_WHERE = "Where the ledger is"
_where = _options.together(
    _options.option(
        _WHERE,
        "--database",
        metavar="URL",
        envvar="HEREISH_DATABASE",
        help="A file of SQLite, or postgresql+psycopg://user@host/name. Your own data folder if "
        "not given.",
    ),
    _options.option(
        _WHERE,
        "--key-file",
        metavar="FILE",
        envvar="HEREISH_KEY_FILE",
        help="The key of the ledger; HEREISH_KEY may hold the key itself. Made with a new ledger.",
    ),
    _options.option(
        _WHERE,
        "--mark",
        metavar="FILE",
        envvar="HEREISH_MARK",
        help="The high-water mark: tells that a ledger was restored. Keep it out of backups.",
    ),
)


def where(function: Callable[..., None]) -> Callable[..., None]:
    """Options that say where the ledger is; the command gets them as one, named `where`."""

    @wraps(function)
    def gathered(database: str | None, key_file: str | None, mark: str | None, **said: Any) -> None:
        function(where=Where(database, key_file, mark), **said)

    return _where(gathered)


_LIMITS = "What has one budget, and how often"
policy = _options.together(
    _options.promise,
    _options.spending,
    _options.tuning,
    _options.option(
        _LIMITS,
        "--window",
        default="day",
        show_default=True,
        metavar="day|none|DURATION",
        help="A fresh budget each day, never, or each 12h, say.",
    ),
    _options.option(
        _LIMITS,
        "--time-zone",
        default="UTC",
        show_default=True,
        metavar="NAME",
        help="Where days begin, such as Europe/Helsinki.",
    ),
    _options.option(
        _LIMITS,
        "--every",
        default="30min",
        show_default=True,
        metavar="DURATION",
        help="The smallest interval between reports, or 0. What comes sooner gets the last "
        "release again, free.",
    ),
    _options.on_exhausted(_LIMITS),
)


def secret(words: str) -> str:
    """Something that is typed unseen, or the first line of what is piped in."""
    if sys.stdin.isatty():
        typed: str = click.prompt(words, hide_input=True)
        return typed
    return sys.stdin.readline().rstrip("\r\n")


def sure(question: str, yes: bool) -> None:
    """Go on only if somebody agrees, or said --yes."""
    if yes:
        return
    try:
        agreed = click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise ParameterError("nobody is there to answer; --yes does it without asking") from None
    if not agreed:
        raise HereishError("nothing was done")


def _gateway() -> tuple[Any, Any]:
    try:
        from hereish.gateway.ledger.ledger import Ledger
        from hereish.gateway.paths import resolve_paths
    except ImportError:
        raise ParameterError("the gateway needs more: pip install 'hereish[gateway]'") from None
    return resolve_paths, Ledger


def policy_of(
    level: str,
    radius: str,
    accuracy: str | None,
    reports: int | None,
    mechanism: str,
    skip_speed: str,
    settings: str | None,
    window: str,
    time_zone: str,
    every: str,
    on_exhausted: str,
) -> Policy:
    """The policy that the options describe, after a warning if it promises little."""
    from hereish.gateway.ledger.policy import Policy

    told: dict[str, Any] = {
        "window": window if window in ("day", "none") else str(_units.duration_s(window)),
        "time_zone": time_zone,
        "interval_s": 0.0 if every == "0" else _units.duration_s(every),
        "on_exhausted": on_exhausted,
    }
    if settings is not None:
        _options.unless_in_settings()
        found = tuned.read(settings)
        told |= {
            "level": found.level,
            "radius_m": found.radius_m,
            "accuracy_m": found.noise_accuracy_m,
            "eta": found.eta,
            "gamma": found.gamma,
            "prediction_rate": found.prediction_rate,
            "skip_kmh": found.speed_kmh,
            "skip_limit_m": found.limit_m,
            "skip_since": "tested" if found.restart else "hard",
        }
    elif (accuracy is None) == (reports is None):
        raise ParameterError("give either --accuracy, such as 3km, or --reports, such as 30")
    else:
        told |= {
            "level": _units.level(level),
            "radius_m": _units.length_m(radius),
            "accuracy_m": None if accuracy is None else _units.length_m(accuracy),
            "reports": reports,
            "mechanism": mechanism,
            "skip_kmh": None if skip_speed == "off" else _units.speed_kmh(skip_speed),
        }
    policy = Policy(**told)
    _options.warned(policy.build())
    return policy
