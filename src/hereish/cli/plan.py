"""`hereish plan`: what a setting means, before it is used."""

from __future__ import annotations

import dataclasses
import json
import math

import click

from hereish.cli import _forecast_text
from hereish.cli._formatting import format_count, format_distance, format_duration, format_rows
from hereish.cli._gateway_options import PolicyOptions, policy_options
from hereish.cli._options import RUNNING, Command, json_flag, option
from hereish.cli._progress import Progress
from hereish.core.accounting import second_promise
from hereish.core.ensemble import Ensemble
from hereish.core.filter import Filter
from hereish.core.linear import Linear
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.forecast import (
    Distinguishability,
    ExpectedError,
    Forecast,
    Outlook,
    adds_up,
    outlook,
)

EXAMPLE = """\b
Examples:
  hereish plan --time-zone Europe/Helsinki
  hereish plan --every 5min --quiet-hours 23:00-06:30
  hereish plan --accuracy 3km
  hereish plan --budget "ln 10/day" --budget "ln 1000/month"
  hereish plan --preset few-days --observer 3
  hereish plan --level "ln 4" --radius 200m --reports 30 --json
"""
_TERMS = {
    "epsilon": "how much all reports of one budget may reveal per metre: smaller is more private",
    "fresh noise": "a random place around the true one",
}
_TERMS_OF_INDEPENDENT_NOISE = {
    "independent noise": "fresh noise for every report, without prediction",
}
_TERMS_OF_NOISE_FIRST = {
    "guess": "a place that was reported before; if the test passes it is reported again",
    "test": "checks whether the guess is near the fresh noise that was drawn; costs less than it",
}
_TERMS_OF_PREDICTION = {
    "guess": "the last release again; it costs no noise",
    "test": "checks in private, with noise, whether the guess is close enough",
    "threshold": "how close that is; if the test fails, fresh noise is drawn",
    "break-even": "how often guesses must pass for prediction to cost less than independent noise",
}

_TERMS_OF_MOVEMENT = {
    "guess": "where somebody is expected, going on as the reports so far; it costs no noise",
}


@click.command(cls=Command, epilog=EXAMPLE, short_help="what a setting means, before it is used")
@policy_options
@option(
    RUNNING,
    "--observer",
    type=click.IntRange(1, 1000),
    metavar="PEOPLE",
    help="Also let an observer look for the homes of so many made-up people, who report every half "
    "hour. Takes some seconds for each of them.",
)
@option(
    RUNNING,
    "--nights",
    type=click.IntRange(1, 3660),
    multiple=True,
    help="After how many nights; may be repeated. The default is 1, 7 and 28. A year of nights "
    "takes about half a minute for each of the people.",
)
@json_flag("The same numbers for programs.")
def command(
    options: PolicyOptions, observer: int | None, nights: tuple[int, ...], as_json: bool
) -> None:
    """Explain a setting: how many reports it gives, how far they lie from the truth, when the
    budget is exhausted, and what an observer can learn. The options are those of hereish user add.
    """
    if nights and observer is None:
        raise click.UsageError("--nights is for an observer: give --observer PEOPLE too")
    policy = options.policy()
    mechanism = policy.build()
    numbers = outlook(mechanism)
    expected = _forecast_text.forecast_policy(policy)
    summary = _forecast_text.summarise(policy, numbers, expected)
    besides = second_promise(mechanism)
    homes = None if observer is None else _find_homes(mechanism, observer, nights)
    if as_json:
        values = _plain(numbers) | {
            "preset": policy.chosen_preset,
            "forecast": dataclasses.asdict(expected),
            "summary": summary,
            "limits": [
                {"covers": limit.covers(), "level": limit.level} for limit in mechanism.limits
            ],
            "adds_up": [revealed._asdict() for revealed in adds_up(mechanism)],
            "second_promise": None if besides is None else dataclasses.asdict(besides),
        }
        if homes is not None:
            values["homes_found_within_200_m"] = homes
        click.echo(json.dumps(values, indent=2))
    else:
        click.echo(f"{summary}.\n")
        click.echo(describe(numbers, expected, mechanism))
        if besides is not None:
            click.echo(f"A second promise, besides the first. {besides}")
        if homes is not None and observer is not None:
            click.echo(f"\n{_describe_homes(homes, observer)}")
        click.echo()
        _forecast_text.print_forecast(policy, expected, "plan")


def _find_homes(
    mechanism: PredictiveMechanism, people: int, nights: tuple[int, ...]
) -> dict[int, float]:
    from hereish.attack.night_study import NIGHTS, homes_found  # scipy is slow to import

    asked = tuple(sorted(set(nights))) or NIGHTS
    with Progress("looking for homes", quiet=False, unit="people") as progress:
        return homes_found(mechanism, people, nights=asked, progress=progress)


def _describe_homes(homes: dict[int, float], people: int) -> str:
    rows = [
        (f"  after {format_count(nights, 'night')}", f"{share:.0%}")
        for nights, share in homes.items()
    ]
    return (
        "An observer who knows these settings, and that people sleep at home, finds the homes of "
        f"so many of {people} made-up people within 200 m, with a report every half hour:\n"
        f"{format_rows(rows)}"
    )


def _plain(numbers: Outlook) -> dict[str, object]:
    """As JSON has it: infinity is none of its numbers."""

    def finite(value: object) -> object:
        if isinstance(value, dict):
            return {key: finite(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {key: finite(value) for key, value in dataclasses.asdict(numbers).items()}


def describe(numbers: Outlook, expected: Forecast, mechanism: PredictiveMechanism) -> str:
    """The promise, the numbers of a setting, their terms, and what an observer can learn."""
    n = numbers
    budget = [("the privacy budget", f"epsilon = {n.eps_per_m:.6g} per metre")]
    if isinstance(mechanism.decider, NoiseFirst):
        rows, terms = _rows_of_noise_first(n, expected), _TERMS | _TERMS_OF_NOISE_FIRST
    else:
        rows, terms = _rows_of_paper(n, expected), _TERMS | _TERMS_OF_INDEPENDENT_NOISE
        if n.threshold_m is not None:
            terms |= _TERMS_OF_PREDICTION
    changes = "These numbers are for the first reports; a plan may change as the day goes on."
    if n.reports_if_all_are_hard is None:
        changes = "What a report may cost follows from the time of day and from what is left."
    if isinstance(mechanism.prediction, (Linear, Filter, Ensemble)):
        terms |= _TERMS_OF_MOVEMENT
    observer = "\n".join(f"  {_describe_observer(tells)}" for tells in n.tells)
    return (
        f"{mechanism.guarantee}\n\n{format_rows(budget + rows)}\n\nThe terms:\n"
        f"{format_rows(list(terms.items()))}\n\n"
        "An observer who sees all reports, and thought two traces equally likely before, can be "
        f"at most this sure which of them is the true one:\n{observer}\n{changes}\n\n"
        f"{_describe_adding_up(mechanism)}"
    )


def _describe_adding_up(mechanism: PredictiveMechanism) -> str:
    """What days, months and years may reveal together."""
    radius = format_distance(mechanism.privacy.radius_m)
    rows = [
        (f"  {revealed.period}", _describe_factor(revealed.level))
        for revealed in adds_up(mechanism)
    ]
    limited = "; --budget 'ln 1000/month' would limit that"
    if mechanism.limits:
        limited = (
            f", and are limited for {' and for '.join(one.covers() for one in mechanism.limits)}"
        )
    return (
        f"Budgets add up{limited}. Whatever is released in a period is at most so many times as "
        f"likely from one trace as from any other within {radius}:\n{format_rows(rows)}"
    )


def _describe_factor(level: float) -> str:
    if level <= math.log(1e6) * (1.0 + 1e-9):
        return f"{math.exp(level):,.4g} times"
    return f"1e{math.ceil(level / math.log(10.0) - 1e-9)} times"


def _rows_of_paper(n: Outlook, expected: Forecast) -> list[tuple[str, str]]:
    rows = [
        ("fresh noise lies from the truth", f"{format_distance(n.noise_mean_m)} on average"),
        ("", f"within {format_distance(n.noise_90_m)} nine times out of ten"),
        ("fresh noise costs", f"{n.cost_of_noise:.2%} of the budget"),
        ("independent noise would last for", f"{n.reports_of_independent_noise} reports"),
    ]
    if n.threshold_m is not None and n.break_even is not None:
        rows += [
            ("a test costs", f"{n.cost_of_test:.2%} of the budget"),
            ("threshold: a guess passes, roughly, within", format_distance(n.threshold_m)),
            (
                "break-even: it pays off if guesses pass",
                f"more than {n.break_even:.1%} of the time",
            ),
        ]
        rows += _rows_of_extremes(expected)
    return rows


def _rows_of_noise_first(n: Outlook, expected: Forecast) -> list[tuple[str, str]]:
    """What reports are like on the made-up days, and what the first of them may cost."""
    rows = [("reports lie from the truth", _describe_error(expected.error))]
    if len(expected.error_by_part) > 1:
        rows += [
            (f"  {_describe_part(part)}", _describe_error(part)) for part in expected.error_by_part
        ]
    first = ", at first," if n.reports_if_all_are_hard is None else ""
    noise = f"{format_distance(n.noise_mean_m)} on average"
    rows += [
        (
            f"fresh noise{first} lies",
            f"{noise}, nine out of ten within {format_distance(n.noise_90_m)}",
        ),
        (f"fresh noise{first} costs", f"{n.cost_of_noise:.2%} of the budget"),
        (f"a test{first} costs", f"{n.cost_of_test:.2%}, half an hour after the last one"),
    ]
    ends = (expected.ends_if_every_guess_fails, expected.ends_if_every_guess_passes)
    return rows if ends == (None, None) else rows + _rows_of_extremes(expected)


def _describe_part(part: ExpectedError) -> str:
    if part.at is not None:
        return f"from {part.at} on"
    return f"after {format_duration(part.from_s)}" if part.from_s else "at first"


def _describe_error(error: ExpectedError) -> str:
    if error.mean_m is None or error.within_90_m is None:
        return "no reports: the budget is gone"
    return (
        f"{format_distance(error.mean_m)} on average, nine out of ten within "
        f"{format_distance(error.within_90_m)}"
    )


def _rows_of_extremes(expected: Forecast) -> list[tuple[str, str]]:
    cases = {
        "fails": expected.ends_if_every_guess_fails,
        "passes": expected.ends_if_every_guess_passes,
    }
    counts = [
        f"{expected.looked_ahead} or more reports if every guess {outcome}"
        if end is None
        else f"{format_count(end.reports, 'report')} if every guess {outcome}"
        for outcome, end in cases.items()
    ]
    return [("the budget lasts for", counts[0]), ("", counts[1])]


def _describe_observer(tells: Distinguishability) -> str:
    apart = f"{format_distance(tells.apart_m)} apart:".ljust(14)
    if tells.factor > 1e4:
        return f"{apart} practically certain"
    return f"{apart} {tells.even_odds_become:.1%} ({tells.factor:.3g} to 1)"
