"""`hereish user`: who may use the gateway, and with which policy."""

from __future__ import annotations

import dataclasses
import json
import math
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from hereish.cli import _forecast_text
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._formatting import format_rows, format_time
from hereish.cli._gateway_options import (
    LedgerLocation,
    PolicyOptions,
    format_ledger_command,
    ledger_options,
    policy_options,
)
from hereish.cli._messages import note
from hereish.cli._options import YES, Command, json_flag
from hereish.cli._prompts import require_consent

if TYPE_CHECKING:
    from hereish.gateway.admin.accounts import UserOverview
    from hereish.gateway.ledger.budget_status import BudgetStatus, SecondStatus
    from hereish.gateway.ledger.policy import Policy
    from hereish.gateway.ledger.rest_forecast import RestForecast

EXAMPLE = """\b
Examples:
  hereish user add alice --time-zone Europe/Helsinki
  hereish user add carol --time-zone Europe/Helsinki --quiet-hours 23:00-06:30
  hereish user add dave --accuracy 3km --time-zone Europe/Helsinki
  hereish user add bob --reports 30 --every 10min --on-exhausted predict
  hereish user add erin --budget "ln 10/day" --budget "ln 1000/month"
  hereish user list
  hereish user show alice
  hereish user policy alice --reports 30 --every 5min
  hereish user disable alice
  hereish user enable alice
  hereish user delete bob --yes
"""


@click.group(epilog=EXAMPLE, short_help="who may use the gateway, and with which policy")
def command() -> None:
    """Add, show and change the users of the gateway. A user is one person with one budget, however
    many devices they have.
    """


@command.command(cls=Command)
@click.argument("name", metavar="NAME")
@policy_options
@ledger_options
def add(name: str, location: LedgerLocation, options: PolicyOptions) -> None:
    """Add a user with a policy. Its budget lasts the day, unless --accuracy, --reports or --preset
    say how else it is spent.
    """
    policy = options.policy()
    with location.open() as ledger:
        from hereish.gateway.admin import accounts

        accounts.add_user(ledger, name, policy)
    click.echo(f"added {name}. {policy.build().guarantee}")
    _print_forecast(policy, name)
    token = format_ledger_command("token new", name, device="phone")
    click.echo(f"Now a token for each device: {token}")
    _note_utc(policy)


@command.command(cls=Command)
@click.argument("name", metavar="NAME")
@policy_options
@ledger_options
def policy(name: str, location: LedgerLocation, options: PolicyOptions) -> None:
    """Give a user another policy. It applies from the next window on, so that no window's budget is
    spent twice. It replaces the whole policy: what is left out has its default.
    """
    new = options.policy()
    with location.open() as ledger:
        from hereish.gateway.admin import accounts

        version = accounts.set_policy(ledger, name, new)
        waits = accounts.describe_user(ledger, name).waiting is not None
    when = "from the next window on" if waits else "from now on: nothing was reported yet"
    click.echo(f"policy {version} of {name} applies {when}. {new.build().guarantee}")
    _print_forecast(new, name)
    _note_utc(new)


@command.command("list", cls=Command)
@json_flag()
@ledger_options
def list_(location: LedgerLocation, as_json: bool) -> None:
    """List the users."""
    with location.open() as ledger:
        from hereish.gateway.admin import accounts

        found = accounts.list_users(ledger)
    if as_json:
        rows = [{"name": name, "disabled": at_s is not None} for name, at_s in found]
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for name, disabled_s in found:
        click.echo(name if disabled_s is None else f"{name}  (disabled {format_time(disabled_s)})")
    if not found:
        first = format_ledger_command("user add", "NAME", time_zone="Europe/Helsinki")
        click.echo(f"no user yet: {first}", err=True)


@command.command(cls=Command)
@click.argument("name", metavar="NAME")
@json_flag()
@ledger_options
def show(name: str, location: LedgerLocation, as_json: bool) -> None:
    """Show a user: policy, budget, devices. No place is shown, not even a released one."""
    with location.open() as ledger:
        from hereish.gateway.admin import accounts, destinations

        account = accounts.describe_user(ledger, name)
        forwards = len(destinations.list_destinations(ledger, name))
    click.echo(
        _account_as_json(account, forwards) if as_json else _describe_account(account, forwards)
    )


@command.command(cls=Command)
@click.argument("name", metavar="NAME")
@ledger_options
def disable(name: str, location: LedgerLocation) -> None:
    """Refuse all tokens of a user, and forward nothing."""
    _set_disabled(name, True, location)


@command.command(cls=Command)
@click.argument("name", metavar="NAME")
@ledger_options
def enable(name: str, location: LedgerLocation) -> None:
    """Take the tokens of a disabled user again."""
    _set_disabled(name, False, location)


@command.command(cls=Command)
@click.argument("name", metavar="NAME")
@YES
@ledger_options
def delete(name: str, yes: bool, location: LedgerLocation) -> None:
    """Delete a user and all that was released. The name cannot be used again: that would be a
    second budget for the same days.
    """
    require_consent(f"Delete {name} and all their releases for ever?", yes)
    with location.open() as ledger:
        from hereish.gateway.admin import accounts

        accounts.delete_user(ledger, name)
    click.echo(f"deleted {name}. Backups made before this still hold their releases")


def _set_disabled(name: str, disabled: bool, location: LedgerLocation) -> None:
    with location.open() as ledger:
        from hereish.gateway.admin import accounts

        accounts.set_disabled(ledger, name, disabled)
    click.echo(f"{name} is {'disabled' if disabled else 'enabled'}")


def _print_forecast(policy: Policy, name: str) -> None:
    expected = _forecast_text.forecast_policy(policy)
    _forecast_text.print_forecast(policy, expected, "user policy", name)


def _note_utc(policy: Policy) -> None:
    """A day that begins in the middle of somebody's day is seldom meant."""
    if policy.window == "day" and not is_on_command_line("time_zone"):
        note(
            "days begin at midnight UTC; give --time-zone, such as Europe/Helsinki, for those of "
            "where the user lives"
        )


def _describe_policy(policy: Policy) -> str:
    parts = [
        policy.describe(),
        f"reports at least {policy.interval_s:g} s apart",
        "the last report again" if policy.on_exhausted == "predict" else "nothing",
    ]
    parts[-1] += " when the budget is spent"
    if policy.skip_kmh is not None:
        parts.append(f"tests skipped below {policy.skip_kmh:g} km/h")
    return "; ".join(parts)


def _describe_rest(expected: RestForecast, time_zone: str, window: str) -> str:
    """When the budget of the present window will be spent, by made-up days."""
    zone = ZoneInfo(time_zone)
    now = datetime.now(zone)

    def clock(at_s: float) -> str:
        at = datetime.fromtimestamp(at_s, zone)
        return at.strftime("%H:%M" if at.date() == now.date() else "%Y-%m-%d %H:%M")

    early, typical, late = expected.ends_early_s, expected.ends_typical_s, expected.ends_late_s
    if expected.looked_until_s != expected.window_ends_s:
        until = f"beyond {clock(expected.looked_until_s)}"
    elif window == "day":
        until = "to the end of the day"
    else:
        until = f"to the end of its window at {clock(expected.looked_until_s)}"
    if typical is not None:
        span = f"from {clock(early)} on" if early is not None else ""
        if early is not None and late is not None:
            span = f"between {clock(early)} and {clock(late)}"
        return f"expected to be spent at about {clock(typical)} ({span})"
    words = f"expected to last {until}"
    if early is not None:
        often = "" if expected.lasts_share is None else f" on {expected.lasts_share:.0%} of days"
        words += f"{often}; otherwise spent from {clock(early)} on"
    return words


def _account_as_json(account: UserOverview, forwards: int) -> str:
    def plain(value: object) -> object:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        return str(value)

    values = account._asdict() | {
        "description": _describe_policy(account.policy),
        "standing": _standing(account.budget),
        "second": _second_as_plain(account.second),
        "tokens": [token._asdict() for token in account.tokens],
        "destinations": forwards,
    }
    return json.dumps(values, indent=2, default=plain, ensure_ascii=False)


def _standing(budget: BudgetStatus) -> dict[str, object]:
    limits = [limit._asdict() | {"remaining": limit.remaining} for limit in budget.limits]
    return budget._asdict() | {"remaining": budget.remaining, "limits": limits}


def _second_as_plain(second: SecondStatus | None) -> dict[str, object] | None:
    if second is None:
        return None
    return dataclasses.asdict(second.promise) | {"level_so_far": second.level_so_far}


def _second_rows(account: UserOverview) -> list[tuple[str, str]]:
    """What is promised besides, and how much of that the reports so far have lost."""
    second = account.second
    if second is None:
        return []
    so_far = f"the reports so far: at most {math.exp(second.level_so_far):.3g} times"
    return [("besides", str(second.promise)), ("", so_far)]


def _limit_rows(budget: BudgetStatus) -> list[tuple[str, str]]:
    """The budgets of longer windows."""
    rows = []
    for limit in budget.limits:
        left = "it is full" if limit.is_full else f"{1 - limit.share:.1%} of it is left"
        rows.append(("limit", f"{limit.share:.1%} spent, {left}"))
        others = f", {limit.by_jobs / limit.total:.1%} of it beside these reports"
        rows.append(("", f"covers {limit.window}{others if limit.by_jobs else ''}"))
    return rows


def _waiting_rows(account: UserOverview) -> list[tuple[str, str]]:
    if account.waiting is None:
        return []
    return [("", f"waits for a later window: {_describe_policy(account.waiting)}")]


def _rest_rows(account: UserOverview) -> list[tuple[str, str]]:
    if account.forecast is None:
        return []
    policy = account.policy
    return [("", _describe_rest(account.forecast, policy.time_zone, policy.window))]


def _describe_account(account: UserOverview, forwards: int) -> str:
    budget, policy = account.budget, account.policy
    spent = budget.spent / budget.total
    state = "the budget is spent" if budget.exhausted else f"{1 - spent:.1%} of it is left"
    if budget.closed:
        state = "and no more is released: the window was closed after a restore"
    rows = [
        ("added", format_time(account.created_s)),
        ("promise", account.guarantee),
        *_second_rows(account),
        ("policy", f"version {account.version}: {_describe_policy(policy)}"),
        *_waiting_rows(account),
        ("budget", f"{spent:.1%} spent in {budget.reports} reports, {state}"),
        ("", f"covers {budget.window}"),
        *([("", f"{budget.by_jobs / budget.total:.1%} by jobs")] if budget.by_jobs else []),
        *_rest_rows(account),
        *_limit_rows(budget),
        ("ledger", f"{account.entries} entries, forwarded to {forwards} destination(s)"),
    ]
    if account.disabled_s is not None:
        rows.insert(0, ("disabled", format_time(account.disabled_s)))
    for token in account.tokens:
        details = [f"made {format_time(token.created_s)}"]
        details += ["primary device"] if token.device == account.primary_device else []
        details += ["OwnTracks passphrase"] if token.encrypted else []
        details += ["shows releases"] if token.show_release else []
        details += (
            [f"revoked {format_time(token.revoked_s)}"] if token.revoked_s is not None else []
        )
        rows.append((f"token {token.id}", f"{token.device}: {', '.join(details)}"))
    if not account.tokens:
        new = format_ledger_command("token new", account.name, device="phone")
        rows.append(("tokens", f"none yet: {new}"))
    return f"{account.name}\n{format_rows(rows)}"
