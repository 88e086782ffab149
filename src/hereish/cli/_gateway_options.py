"""Options of the gateway's commands: where its ledger is, and what a policy is made of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from hereish.cli import _units
from hereish.cli._command_lines import (
    format_command,
    is_on_command_line,
    options_on_command_line,
)
from hereish.cli._mechanism_options import (
    MECHANISM_OPTIONS,
    MechanismOptions,
    on_exhausted_option,
    warn_if_weak,
)
from hereish.cli._messages import note
from hereish.cli._options import collect, option
from hereish.core.mechanism import OnExhausted
from hereish.core.settings import MechanismSettings, Preset
from hereish.errors import ParameterError

if TYPE_CHECKING:
    from hereish.gateway.ledger.ledger import Ledger
    from hereish.gateway.ledger.policy import Policy
    from hereish.gateway.paths import GatewayPaths

_DAY_S = 86400.0
NOT_INSTALLED = "the gateway needs more packages: pip install 'hereish[gateway]'"


@dataclass(frozen=True)
class LedgerLocation:
    """Where the parts of the ledger are, if the options or the environment say so."""

    database: str | None
    key_file: str | None
    mark: str | None

    def paths(self) -> GatewayPaths:
        """The options, or the default paths."""
        find_paths, _ = _import_gateway()
        found: GatewayPaths = find_paths(self.database, self.key_file, self.mark)
        return found

    @contextmanager
    def open(self, *, check: bool = True) -> Iterator[Ledger]:
        """The ledger for one command."""
        _, ledger_class = _import_gateway()
        paths = self.paths()
        ledger = ledger_class.open(paths, check=check, pool=1)
        if ledger.created:
            note(describe_new_ledger(paths))
        try:
            yield ledger
        finally:
            ledger.close()


_LOCATION_NAMES = [field.name for field in fields(LedgerLocation)]


def _import_gateway() -> tuple[Any, Any]:
    try:
        from hereish.gateway.ledger.ledger import Ledger
        from hereish.gateway.paths import resolve_paths
    except ImportError:
        raise ParameterError(NOT_INSTALLED) from None
    return resolve_paths, Ledger


def describe_new_ledger(paths: GatewayPaths) -> str:
    """Where the parts of a new ledger are."""
    if os.environ.get("HEREISH_KEY") is not None:
        key = "its key is that of HEREISH_KEY"
    else:
        key = f"its key is {paths.key_file}"
    return (
        f"made a new ledger: {format_database(paths.database)}; {key}, and its high-water mark is "
        f"{paths.mark_file}. Without the key the ledger cannot be used: back up the key apart from "
        "the ledger, and the mark not at all"
    )


def format_database(url: str) -> str:
    """The file of SQLite, or the address without its password."""
    from sqlalchemy import make_url

    address = make_url(url)
    if address.get_backend_name() == "sqlite" and address.database:
        return address.database
    return address.render_as_string(hide_password=True)


def is_location_given() -> bool:
    """Whether the command line says where the ledger is."""
    return any(is_on_command_line(name) for name in _LOCATION_NAMES)


def format_ledger_command(command: str, *arguments: str, **options: str) -> str:
    """Another command for the same ledger, quoted for a shell."""
    here = {
        name: value for name, value in options_on_command_line().items() if name in _LOCATION_NAMES
    }
    return format_command(command, arguments, options | here)


_WHERE = "Where the ledger is"
# The command gets `location`.
ledger_options = collect(
    "location",
    LedgerLocation,
    option(
        _WHERE,
        "--database",
        metavar="URL",
        envvar="HEREISH_DATABASE",
        help="A file of SQLite, or postgresql+psycopg://user@host/name. Your own data folder if "
        "not given.",
    ),
    option(
        _WHERE,
        "--key-file",
        metavar="FILE",
        envvar="HEREISH_KEY_FILE",
        help="The key of the ledger; HEREISH_KEY may hold the key itself. Made with a new ledger.",
    ),
    option(
        _WHERE,
        "--mark",
        metavar="FILE",
        envvar="HEREISH_MARK",
        help="The high-water mark: shows that a ledger was restored. Keep it out of backups.",
    ),
)


@dataclass(frozen=True)
class PolicyOptions(MechanismOptions):
    """The options of a policy as they are given."""

    window: str
    time_zone: str
    every: str | None
    on_exhausted: OnExhausted

    def policy(self) -> Policy:
        """The policy that they describe, after a warning if it promises little."""
        from hereish.gateway.ledger.policy import Policy

        if self.prediction == "roads":
            raise ParameterError(
                "--prediction roads is for hereish sanitize, which reads a road file: a policy "
                "names none, so that it means the same on every machine and after every restart. "
                "Leave it out, or choose ensemble"
            )
        window, settings = self._first_window(self.mechanism_settings())
        fixed_window = window in ("day", "none")
        every = self.every or _EVERY.get(settings.chosen_preset, "30min")
        policy = Policy(
            **asdict(settings),
            window=window if fixed_window else str(_units.duration_s(window)),
            time_zone=self.time_zone,
            interval_s=0.0 if every == "0" else _units.duration_s(every),
            on_exhausted=self.on_exhausted,
        )
        warn_if_weak(policy.build())
        return policy

    def _first_window(self, settings: MechanismSettings) -> tuple[str, MechanismSettings]:
        """The window that is paced, and that a policy begins with: the day if it has a budget.

        Else it has the budget of the shortest, which is then a limit beside it; and where that is
        shorter than a day, windows of its length have.
        """
        budgets = self.budgets
        if not budgets:
            return self.window, settings
        shortest = budgets[0]
        first = next((one for one in budgets if one.period == "day"), shortest)
        named = {"day": "day", "forever": "none"}
        beside = first.period not in named
        limits = [(one.period, one.level) for one in budgets if beside or one is not first]
        settings = replace(settings, level=first.level, limits=tuple(limits) or None)
        shorter = "day" if first.length_s >= _DAY_S else first.period
        return named.get(first.period, shorter), settings


_BUDGET = "What has one budget, and how often"
_EVERY: dict[Preset | None, str] = {"frequent": "5min"}
# The command gets `options`.
policy_options = collect(
    "options",
    PolicyOptions,
    MECHANISM_OPTIONS,
    option(
        _BUDGET,
        "--window",
        default="day",
        show_default=True,
        metavar="day|none|DURATION",
        help="A fresh budget each day, never, or each 12h, say.",
    ),
    option(
        _BUDGET,
        "--time-zone",
        default="UTC",
        show_default=True,
        metavar="NAME",
        help="Where days begin, such as Europe/Helsinki.",
    ),
    option(
        _BUDGET,
        "--every",
        metavar="DURATION",
        help="The smallest interval between reports, or 0. What comes sooner gets the last "
        "release again, free. 30min if not given, and 5min with --preset frequent.",
    ),
    on_exhausted_option(_BUDGET),
)
