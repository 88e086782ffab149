"""`hereish plan`: what a setting means, before it is used."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import click

from hereish.cli import _forecast, _gateway_options, _options
from hereish.cli._wording import far
from hereish.core.privacy import Privacy
from hereish.forecast import Outlook, outlook

EXAMPLE = """\b
Examples:
  hereish plan --accuracy 3km
  hereish plan --level "ln 4" --radius 200m --reports 30 --json
"""


@click.command(
    cls=_options.Command, epilog=EXAMPLE, short_help="what a setting means, before it is used"
)
@_gateway_options.policy
@_options.option("Other", "--json", "as_json", is_flag=True, help="The same numbers for programs.")
def command(as_json: bool, **said: Any) -> None:
    """Say what a setting means: how far reports lie from the truth, how many there are, when the
    budget will be gone, and what an observer can tell. Give --accuracy or --reports. The options
    are those of hereish user add.
    """
    policy = _gateway_options.policy_of(**said)
    built = policy.build()
    numbers = outlook(built)
    if as_json:
        found = dataclasses.asdict(_forecast.of(policy))
        click.echo(json.dumps(_plain(numbers) | {"forecast": found}, indent=2))
    else:
        click.echo(words(numbers, built.privacy))
        click.echo()
        _forecast.tell(policy, "plan")


def _plain(numbers: Outlook) -> dict[str, object]:
    """As JSON has it: infinity is none of its numbers."""

    def finite(value: object) -> object:
        if isinstance(value, dict):
            return {key: finite(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {key: finite(value) for key, value in dataclasses.asdict(numbers).items()}


def words(numbers: Outlook, privacy: Privacy) -> str:
    """The outlook in plain words."""
    n = numbers
    rows = [
        ("the budget", f"eps = {n.eps_per_m:.6g} per metre"),
        ("fresh noise lies from the truth", f"{far(n.noise_mean_m)} on average"),
        ("", f"within {far(n.noise_90_m)} nine times out of ten"),
        ("fresh noise costs", f"{n.cost_of_noise:.2%} of the budget"),
        ("independent noise would last for", f"{n.reports_of_independent_noise} reports"),
    ]
    if n.threshold_m is not None and n.break_even is not None:
        rows += [
            ("testing a guess costs", f"{n.cost_of_test:.2%} of the budget"),
            ("a guess passes, roughly, if within", far(n.threshold_m)),
            ("this lasts for", f"{n.reports_if_all_are_hard} reports if every guess fails"),
            ("", f"{n.reports_if_all_are_easy} if every guess passes, without skipping"),
            ("it pays if guesses pass more often than", f"{n.break_even:.1%}"),
        ]
    width = max(len(name) for name, _ in rows)
    table = "\n".join(f"  {name.ljust(width)}   {value}" for name, value in rows)
    told = "\n".join(f"  {_tells(t.apart_m, t.factor, t.even_odds_become)}" for t in n.tells)
    return (
        f"For {n.covers}: {privacy}.\n\n{table}\n\n"
        f"An observer who sees all of it, and thought two traces equally likely before, can be at "
        f"most this sure:\n{told}\n"
        "These numbers are for the first reports; a plan may change as the day goes on."
    )


def _tells(apart_m: float, factor: float, sure: float) -> str:
    apart = f"{far(apart_m)} apart:".ljust(14)
    if factor > 1e4:
        return f"{apart} practically certain"
    return f"{apart} {sure:.1%} ({factor:.3g} to 1)"
