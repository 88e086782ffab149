"""`hereish user`: who may use the gateway, and with which policy."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from hereish.cli import _forecast, _gateway_options, _options
from hereish.cli._gateway_options import Where
from hereish.cli._wording import far

if TYPE_CHECKING:
    from hereish.gateway.admin.accounts import UserOverview
    from hereish.gateway.ledger.policy import Policy

EXAMPLE = """\b
Examples:
  hereish user add alice --accuracy 3km --time-zone Europe/Helsinki
  hereish user add bob --reports 30 --every 10min --on-exhausted predict
  hereish user list
  hereish user show alice
  hereish user policy alice --reports 30 --every 5min
  hereish user disable alice
  hereish user enable alice
  hereish user delete bob --yes
"""
_JSON = _options.option("Other", "--json", "as_json", is_flag=True, help="The same for programs.")


@click.group(epilog=EXAMPLE, short_help="who may use the gateway, and with which policy")
def command() -> None:
    """Add, show and change the users of the gateway. A user is one person with one budget, however
    many devices they have.
    """


@command.command(cls=_options.Command)
@click.argument("name", metavar="NAME")
@_gateway_options.policy
@_gateway_options.where
def add(name: str, where: Where, **said: Any) -> None:
    """Add a user with a policy. Give --accuracy or --reports."""
    policy = _gateway_options.policy_of(**said)
    with where.opened() as ledger:
        from hereish.gateway.admin import accounts

        accounts.add_user(ledger, name, policy)
    click.echo(f"added {name}. {policy.build().guarantee}")
    _forecast.tell(policy, "user policy", name)
    token = _gateway_options.hint("token new", name, device="phone")
    click.echo(f"Now a token for each device: {token}")
    _note_utc(policy)


@command.command(cls=_options.Command)
@click.argument("name", metavar="NAME")
@_gateway_options.policy
@_gateway_options.where
def policy(name: str, where: Where, **said: Any) -> None:
    """Give a user another policy. It applies from the next window on, so that no window's budget is
    spent twice. All of it is said anew: what is left out has its default.
    """
    new = _gateway_options.policy_of(**said)
    with where.opened() as ledger:
        from hereish.gateway.admin import accounts

        version = accounts.set_policy(ledger, name, new)
        waits = accounts.describe_user(ledger, name).waiting is not None
    when = "from the next window on" if waits else "from now on: nothing was reported yet"
    click.echo(f"policy {version} of {name} applies {when}. {new.build().guarantee}")
    _forecast.tell(new, "user policy", name)
    _note_utc(new)


@command.command("list", cls=_options.Command)
@_JSON
@_gateway_options.where
def list_(where: Where, as_json: bool) -> None:
    """List the users."""
    with where.opened() as ledger:
        from hereish.gateway.admin import accounts

        found = accounts.list_users(ledger)
    if as_json:
        rows = [{"name": name, "disabled": at_s is not None} for name, at_s in found]
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for name, disabled_s in found:
        click.echo(name if disabled_s is None else f"{name}  (disabled {_date(disabled_s)})")
    if not found:
        first = _gateway_options.hint("user add", "NAME", accuracy="3km")
        click.echo(f"there is no user yet: {first}", err=True)


@command.command(cls=_options.Command)
@click.argument("name", metavar="NAME")
@_JSON
@_gateway_options.where
def show(name: str, where: Where, as_json: bool) -> None:
    """Show a user: policy, budget, devices. No place is shown, not even a released one."""
    with where.opened() as ledger:
        from hereish.gateway.admin import accounts, destinations

        account = accounts.describe_user(ledger, name)
        forwards = len(destinations.list_destinations(ledger, name))
    click.echo(_as_json(account, forwards) if as_json else _in_words(account, forwards))


@command.command(cls=_options.Command)
@click.argument("name", metavar="NAME")
@_gateway_options.where
def disable(name: str, where: Where) -> None:
    """Refuse all tokens of a user, and forward nothing."""
    _set_disabled(name, True, where)


@command.command(cls=_options.Command)
@click.argument("name", metavar="NAME")
@_gateway_options.where
def enable(name: str, where: Where) -> None:
    """Take the tokens of a disabled user again."""
    _set_disabled(name, False, where)


@command.command(cls=_options.Command)
@click.argument("name", metavar="NAME")
@_options.option("Other", "--yes", is_flag=True, help="Do it without asking.")
@_gateway_options.where
def delete(name: str, yes: bool, where: Where) -> None:
    """Delete a user and all that was released. The name cannot be used again: that would be a
    second budget for the same days.
    """
    _gateway_options.sure(f"Delete {name} and all their releases for ever?", yes)
    with where.opened() as ledger:
        from hereish.gateway.admin import accounts

        accounts.delete_user(ledger, name)
    click.echo(f"deleted {name}. Backups made before this still hold their releases")


def _set_disabled(name: str, disabled: bool, where: Where) -> None:
    with where.opened() as ledger:
        from hereish.gateway.admin import accounts

        accounts.set_disabled(ledger, name, disabled)
    click.echo(f"{name} is {'disabled' if disabled else 'enabled'}")


def _note_utc(policy: Policy) -> None:
    """A day that begins in the middle of somebody's day is seldom meant."""
    if policy.window == "day" and "time_zone" not in _options.said():
        click.echo(
            "hereish: note: days begin at midnight UTC; give --time-zone, such as Europe/Helsinki, "
            "for those of where the user lives",
            err=True,
        )


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _policy_in_words(policy: Policy) -> str:
    aim = f"about {policy.reports} reports" if policy.reports else far(policy.accuracy_m or 0.0)
    parts = [
        f"{policy.mechanism}, {aim}",
        f"reports at least {policy.interval_s:g} s apart",
        "the last report again" if policy.on_exhausted == "predict" else "nothing",
    ]
    parts[-1] += " when the budget is spent"
    if policy.skip_kmh is not None:
        parts.append(f"tests spared below {policy.skip_kmh:g} km/h")
    return "; ".join(parts)


def _as_json(account: UserOverview, forwards: int) -> str:
    def plain(value: object) -> object:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        return str(value)

    told = account._asdict() | {
        "standing": account.budget._asdict() | {"remaining": account.budget.remaining},
        "tokens": [token._asdict() for token in account.tokens],
        "destinations": forwards,
    }
    return json.dumps(told, indent=2, default=plain, ensure_ascii=False)


def _in_words(account: UserOverview, forwards: int) -> str:
    standing, policy = account.budget, account.policy
    spent = standing.spent / standing.total
    state = "the budget is spent" if standing.exhausted else f"{1 - spent:.1%} of it is left"
    if standing.closed:
        state = "and no more is paid out: the window was closed after a restore"
    rows = [
        ("added", _date(account.created_s)),
        ("promise", account.guarantee),
        ("policy", f"version {account.version}: {_policy_in_words(policy)}"),
        ("budget", f"{spent:.1%} spent in {standing.reports} reports, {state}"),
        ("", f"it covers {standing.window}"),
        ("ledger", f"{account.entries} entries, forwarded to {forwards} destination(s)"),
    ]
    if account.waiting is not None:
        rows.insert(3, ("", f"waits for a later window: {_policy_in_words(account.waiting)}"))
    if account.disabled_s is not None:
        rows.insert(0, ("disabled", _date(account.disabled_s)))
    for token in account.tokens:
        marks = [f"made {_date(token.created_s)}"]
        marks += ["primary device"] if token.device == account.primary_device else []
        marks += ["OwnTracks passphrase"] if token.encrypted else []
        marks += ["shows releases"] if token.show_release else []
        marks += [f"revoked {_date(token.revoked_s)}"] if token.revoked_s is not None else []
        rows.append((f"token {token.id}", f"{token.device}: {', '.join(marks)}"))
    if not account.tokens:
        new = _gateway_options.hint("token new", account.name, device="phone")
        rows.append(("tokens", f"none yet: {new}"))
    width = max(len(name) for name, _ in rows)
    table = "\n".join(f"  {name.ljust(width)}   {value}" for name, value in rows)
    return f"{account.name}\n{table}"
