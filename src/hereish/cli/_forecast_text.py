"""How many reports a budget pays for and when it is exhausted, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hereish.cli._command_lines import format_command, options_on_command_line
from hereish.cli._formatting import format_count, format_distance, format_duration
from hereish.cli._remedies import find_remedies
from hereish.core.settings import LASTING, NUMBERS
from hereish.forecast import End, Forecast, Outlook, forecast

if TYPE_CHECKING:
    from hereish.gateway.ledger.policy import Policy

_LASTING_SHARE = 0.9  # of the made-up days: from here on a budget counts as lasting
_DAY_S = 86400.0
_CLOCK_FROM_S = 1800.0  # an end sooner after midnight is given in minutes


def forecast_policy(policy: Policy) -> Forecast:
    """The forecast of a policy."""
    return forecast(policy.build(), policy.interval_s, time_zone=policy.time_zone)


def budget_lasts(expected: Forecast) -> bool:
    """Whether the budget lasts on all but few ordinary days."""
    return expected.lasts_share is not None and expected.lasts_share >= _LASTING_SHARE


def summarise(policy: Policy, numbers: Outlook, expected: Forecast) -> str:
    """One line for everybody: how many reports, and how far from the truth."""
    within_m = numbers.noise_90_m
    if policy.chosen_preset in NUMBERS and expected.error.within_90_m is not None:
        within_m = expected.error.within_90_m  # what is released is not the noise as it was drawn
    return f"{_summarise_counts(policy, expected)}, usually within {_rounded(within_m)}"


def _rounded(metres: float) -> str:
    metres = float(f"{metres:.2g}")
    return format_distance(metres, digits=2 if metres < 100_000 else 3)


def _summarise_counts(policy: Policy, expected: Forecast) -> str:
    if policy.interval_s > _window_length_s(policy):
        return f"1 report every {format_duration(policy.interval_s)}"
    tuned = policy.chosen_preset in NUMBERS
    fewest, most = (typical_range if tuned else count_range)(expected)
    per = _per_window(policy)
    if most == 0:
        return "1 report in all, because the budget does not pay for another"
    endless = expected.looked_ahead if _is_cut_off(policy, expected) else None
    if fewest == endless:
        return f"more than {format_count(fewest, 'report')} {per}"
    if fewest == most:
        return f"{format_count(most, 'report')} {per}"
    upper = f"more than {most:,}" if most == endless else f"{most:,}"
    typical = _count_of(expected.ends_typical, expected)
    aside = f" (typically {typical:,})" if fewest < typical < most else ""
    return f"{fewest:,} to {upper} reports {per}{aside}"


def count_range(expected: Forecast) -> tuple[int, int]:
    """The fewest and the most reports of a window, over all cases of a forecast."""
    ends = (
        expected.ends_if_every_guess_fails,
        expected.ends_early,
        expected.ends_typical,
        expected.ends_late,
        expected.ends_if_every_guess_passes,
    )
    counts = [_count_of(end, expected) for end in ends]
    return min(counts), max(counts)


def typical_range(expected: Forecast) -> tuple[int, int]:
    """The same over the made-up days alone, where the extremes are out of all proportion."""
    return _count_of(expected.ends_early, expected), _count_of(expected.ends_late, expected)


def _count_of(end: End | None, expected: Forecast) -> int:
    return expected.looked_ahead if end is None else end.reports


def _window_length_s(policy: Policy) -> float:
    if policy.window == "none":
        return float("inf")
    return _DAY_S if policy.window == "day" else float(policy.window)


def _is_cut_off(policy: Policy, expected: Forecast) -> bool:
    """Whether a window goes on after the last report that the forecast looked at."""
    if policy.interval_s == 0.0:
        return True
    return expected.looked_ahead * policy.interval_s < _window_length_s(policy)


def _per_window(policy: Policy) -> str:
    if policy.window == "none":
        return "in all"
    return "per day" if policy.window == "day" else f"per {format_duration(float(policy.window))}"


def print_forecast(policy: Policy, expected: Forecast, command: str, *arguments: str) -> None:
    """Print the forecast, and if the budget does not last, commands with which it would."""
    click.echo(describe_forecast(policy, expected))
    if budget_lasts(expected):
        return
    given = options_on_command_line()
    changes = find_remedies(policy, tuned="settings" in given)
    if changes:
        period = "the whole day" if policy.window == "day" else "whole windows"
        click.echo(f"For {period}, one of:")
    for change in changes:
        click.echo(f"  {format_command(command, arguments, given | change)}")


def describe_forecast(policy: Policy, expected: Forecast) -> str:
    """When the budget is exhausted, and what happens then."""
    if policy.interval_s > 0.0:
        every = f"With a report every {format_duration(policy.interval_s)}"
        every += ", day and night," if policy.interval_s < _DAY_S else ""
    else:
        every = "As every fix is a report,"
    paced = policy.chosen_preset in LASTING and budget_lasts(expected)
    travels = "gets reports that are further off" if paced else "spends a budget sooner"
    return (
        f"{every} {_describe_end(policy, expected)}\nThat is a forecast from these settings alone, "
        f"on {expected.days} made-up ordinary days of home, work and errands: whoever travels "
        f"{travels}."
    )


def _describe_end(policy: Policy, expected: Forecast) -> str:
    window, until = _window_phrases(policy)
    rest = f"nothing is released {until}"
    if policy.on_exhausted == "predict":
        rest = f"the last release is repeated, untested, {until}"
    early, late, typical = expected.ends_early, expected.ends_late, expected.ends_typical
    share = expected.lasts_share
    cases = "on {:.0%} of ordinary days" if policy.window == "day" else "in {:.0%} of cases"
    if early is not None and early.reports == 0:
        return "the budget pays for the first report ever and no other: those begin with a test."
    if budget_lasts(expected):
        return _describe_lasting(policy, expected, window, rest, cases)
    if early is None:
        return f"the budget lasts for more than {expected.looked_ahead} reports; after it {rest}."
    aside = _worst_case(policy, expected, early)
    if late is None or typical is None:
        often = "now and then" if share is None else cases.format(share)
        since = f"from {_clock(early)} on" if _clock(early) else f"after {_count(early)} or more"
        return (
            f"the budget lasts {window} {often}; otherwise it will be gone {since}{aside}, "
            f"and then {rest}."
        )
    when = f"at {_clock(early)}" if _clock(early) else f"after {_count(early)}"
    if early.reports < late.reports and _clock(early):
        when = (
            f"between {_clock(early)} and {_clock(late)} on an ordinary day, typically at "
            f"{_clock(typical)}"
        )
    elif early.reports < late.reports:
        spent = "" if typical.after_s is None else f" ({format_duration(typical.after_s)})"
        when = (
            f"after {early.reports} to {late.reports} reports, typically {typical.reports}{spent}"
        )
    return f"the budget will be gone {when}{aside}; after that {rest}."


def _describe_lasting(
    policy: Policy, expected: Forecast, window: str, rest: str, cases: str
) -> str:
    worst, share = expected.ends_if_every_guess_fails, expected.lasts_share
    if policy.mechanism == "independent":
        return f"the budget lasts {window}."
    if worst is None:
        return f"the budget lasts {window}, even if every guess fails."
    often = "" if share is None or share >= 0.995 else f" {cases.format(share)}"
    until = f"until {_clock(worst)}" if _clock(worst) else f"for {_count(worst)}"
    return (
        f"the budget lasts {window}{often} ({until} if every guess fails); once it is gone {rest}."
    )


def _worst_case(policy: Policy, expected: Forecast, early: End) -> str:
    """In brackets. With a rule that skips tests, failures may last longer than passes."""
    worst = expected.ends_if_every_guess_fails
    if policy.mechanism == "independent" or worst is None or worst.reports >= early.reports:
        return ""
    if _clock(worst):
        return f" (at {_clock(worst)} if every guess fails)"
    return f", or after {worst.reports} if every guess fails"


def _window_phrases(policy: Policy) -> tuple[str, str]:
    """What lasts, and until when nothing is released."""
    if policy.window == "day":
        return "the day", "until midnight"
    if policy.window == "none":
        return "for ever", "ever again"
    length = format_duration(float(policy.window))
    return f"each window of {length}", "until the next window"


def _clock(end: End) -> str | None:
    """The local time, where a window is a day and the end is not just after midnight."""
    return end.at if end.after_s is not None and end.after_s >= _CLOCK_FROM_S else None


def _count(end: End) -> str:
    duration = "" if end.after_s is None else f" ({format_duration(end.after_s)})"
    return f"{end.reports} reports{duration}"
