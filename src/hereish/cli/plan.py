"""`hereish plan`: what a setting means, before it is used."""

from __future__ import annotations

import dataclasses
import json
import math

import click

from hereish import Privacy, fixed_rate, fixed_utility, independent
from hereish.cli import units
from hereish.errors import ParameterError
from hereish.mechanism import PredictiveMechanism
from hereish.outlook import Outlook, outlook

EXAMPLE = """\b
Examples:
  hereish plan --accuracy 3km
  hereish plan --level "ln 4" --radius 200m --reports 30 --json
"""


@click.command(epilog=EXAMPLE, short_help="what a setting means, before it is used")
@click.option("--level", default="ln 10", show_default=True, help="Privacy inside the radius.")
@click.option("--radius", default="100m", show_default=True, help="Where it holds.")
@click.option("--accuracy", help="Fresh reports lie within this, nine times out of ten.")
@click.option("--reports", type=int, help="About how many reports the budget shall last for.")
@click.option(
    "--mechanism",
    type=click.Choice(["predictive", "independent"]),
    default="predictive",
    show_default=True,
    help="Guess and test, or fresh noise each time.",
)
@click.option("--json", "as_json", is_flag=True, help="The same numbers for programs.")
def command(
    level: str,
    radius: str,
    accuracy: str | None,
    reports: int | None,
    mechanism: str,
    as_json: bool,
) -> None:
    """Say what a setting means: how far reports lie from the truth, how many there are, and what an
    observer can tell. Give --accuracy or --reports.
    """
    privacy = Privacy(units.level(level), units.length_m(radius))
    built = _mechanism(privacy, accuracy, reports, mechanism)
    numbers = outlook(built)
    if as_json:
        click.echo(json.dumps(_plain(numbers), indent=2))
    else:
        click.echo(words(numbers, privacy))


def _mechanism(
    privacy: Privacy, accuracy: str | None, reports: int | None, kind: str
) -> PredictiveMechanism:
    if (accuracy is None) == (reports is None):
        raise ParameterError("give either --accuracy, such as 3km, or --reports, such as 30")
    accuracy_m = None if accuracy is None else units.length_m(accuracy)
    if kind == "independent":
        return independent(privacy, reports=reports, accuracy_m=accuracy_m)
    if accuracy_m is not None:
        return fixed_utility(privacy, accuracy_m)
    return fixed_rate(privacy, reports or 0)


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
        ("fresh noise lies from the truth", f"{_far(n.noise_mean_m)} on average"),
        ("", f"within {_far(n.noise_90_m)} nine times out of ten"),
        ("fresh noise costs", f"{n.cost_of_noise:.2%} of the budget"),
        ("independent noise would last for", f"{n.reports_of_independent_noise} reports"),
    ]
    if n.threshold_m is not None and n.break_even is not None:
        rows += [
            ("testing a guess costs", f"{n.cost_of_test:.2%} of the budget"),
            ("a guess passes, roughly, if within", _far(n.threshold_m)),
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


def _far(metres: float) -> str:
    return f"{metres:.0f} m" if metres < 1000 else f"{metres / 1000:.3g} km"


def _tells(apart_m: float, factor: float, sure: float) -> str:
    apart = f"{_far(apart_m)} apart:".ljust(14)
    if factor > 1e4:
        return f"{apart} practically certain"
    return f"{apart} {sure:.1%} ({factor:.3g} to 1)"
