"""How long a budget lasts, in words, and which other settings would last for the whole day."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import click

from hereish.cli import _options, _units
from hereish.cli._wording import long
from hereish.errors import HereishError
from hereish.forecast import End, Forecast, forecast, lasts_share
from hereish.gateway.ledger.policy import Policy

# Shares of the made-up days: of what is said to last, and of what is recommended because it does.
# Real days fall a little short of them.
ENOUGH, SAFE = 0.9, 0.95
_INTERVALS = (
    *("1min", "2min", "5min", "10min", "15min", "20min", "30min", "45min"),
    *("1h", "90min", "2h", "3h", "4h", "6h", "8h", "12h"),
)
_MANTISSAS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
_FURTHEST = 8.0  # times as far from the truth as somebody asked for is no remedy
_MOST_REPORTS = 150  # of a window: beyond it only a longer interval is looked for
_DAY_S = 86400.0
_CLOCK_FROM_S = 1800.0  # sooner after midnight, it is better said in minutes

_T = TypeVar("_T")
# The options of a command that are to be different; None: to be left out.
Change = dict[str, str | None]


def of(policy: Policy) -> Forecast:
    """The forecast of a policy."""
    return forecast(policy.build(), policy.interval_s, time_zone=policy.time_zone)


def lasts(found: Forecast) -> bool:
    """Whether the budget lasts on all but few ordinary days."""
    return found.lasts_share is not None and found.lasts_share >= ENOUGH


def tell(policy: Policy, words: str, *arguments: str) -> None:
    """Print the forecast of a policy, and commands (`words`) with which its budget would last."""
    found = of(policy)
    click.echo(sentences(policy, found))
    if lasts(found):
        return
    said = _options.said()
    changes = remedies(policy, tuned="settings" in said)
    if changes:
        whole = "the whole day" if policy.window == "day" else "whole windows"
        click.echo(f"For {whole}, one of:")
    for change in changes:
        click.echo(f"  {_options.command_line(words, arguments, said | change)}")


def sentences(policy: Policy, found: Forecast) -> str:
    """When the budget ends, and what happens then."""
    if policy.interval_s > 0.0:
        every = f"With a report every {long(policy.interval_s)}"
        every += ", day and night," if policy.interval_s < _DAY_S else ""
    else:
        every = "As every fix is a report,"
    return (
        f"{every} {_ends(policy, found)}\nThat is a forecast from these settings alone, on "
        f"{found.days} made-up ordinary days of home, work and errands: whoever travels spends a "
        "budget sooner."
    )


def _ends(policy: Policy, found: Forecast) -> str:
    window, until = _window(policy)
    rest = f"nothing is released {until}"
    if policy.on_exhausted == "predict":
        rest = f"the last release is repeated, untested, {until}"
    early, late, typical = found.ends_early, found.ends_late, found.ends_typical
    share = found.lasts_share
    cases = "on {:.0%} of ordinary days" if policy.window == "day" else "in {:.0%} of cases"
    if early is not None and early.reports == 0:
        return "the budget pays for the first report ever and no other: those begin with a test."
    if lasts(found):
        worst = found.ends_if_every_guess_fails
        if policy.mechanism == "independent":
            return f"the budget lasts {window}."
        if worst is None:
            return f"the budget lasts {window}, even if every guess fails."
        often = "" if share is None or share >= 0.995 else f" {cases.format(share)}"
        return (
            f"the budget lasts {window}{often} (until {_clock(worst) or _count(worst)} if every "
            f"guess fails); once it is gone {rest}."
        )
    if early is None:
        return f"the budget lasts for more than {found.looked_ahead} reports; after it {rest}."
    aside = _aside(policy, found, early)
    if late is None or typical is None:
        often = "now and then" if share is None else cases.format(share)
        since = f"from {_clock(early)} on" if _clock(early) else f"after {_count(early)} or more"
        return (
            f"the budget lasts {window} {often}; else it will be gone {since}{aside}, and then "
            f"{rest}."
        )
    gone = f"at {_clock(early)}" if _clock(early) else f"after {_count(early)}"
    if early.reports < late.reports and _clock(early):
        gone = (
            f"between {_clock(early)} and {_clock(late)} on an ordinary day, typically at "
            f"{_clock(typical)}"
        )
    elif early.reports < late.reports:
        spent = "" if typical.after_s is None else f" ({long(typical.after_s)})"
        gone = (
            f"after {early.reports} to {late.reports} reports, typically {typical.reports}{spent}"
        )
    return f"the budget will be gone {gone}{aside}; after that {rest}."


def _aside(policy: Policy, found: Forecast, early: End) -> str:
    """The worst case. With a rule that spares tests, failures may last longer than passes."""
    worst = found.ends_if_every_guess_fails
    if policy.mechanism == "independent" or worst is None or worst.reports >= early.reports:
        return ""
    if _clock(worst):
        return f" (at {_clock(worst)} if every guess fails)"
    return f", or after {worst.reports} if every guess fails"


def _window(policy: Policy) -> tuple[str, str]:
    """What lasts, and until when there is nothing."""
    if policy.window == "day":
        return "the day", "until midnight"
    if policy.window == "none":
        return "for ever", "ever again"
    return f"each window of {long(float(policy.window))}", "until the next window"


def _clock(end: End) -> str | None:
    """The local time, where a day is what is looked at and minutes of it tell something."""
    return end.at if end.after_s is not None and end.after_s >= _CLOCK_FROM_S else None


def _count(end: End) -> str:
    return f"{end.reports} reports" + ("" if end.after_s is None else f" ({long(end.after_s)})")


def remedies(policy: Policy, *, tuned: bool = False) -> list[Change]:
    """Options in place of those of a policy with which the budget lasts its window.

    The smallest change of each kind, found by the same forecast. Settings of a file (`tuned`) have
    an accuracy that no option can change.
    """
    if policy.window == "none" or (policy.window != "day" and float(policy.window) > _DAY_S):
        return []
    length_s = _DAY_S if policy.window == "day" else float(policy.window)
    found: list[Change | None] = []
    few = policy.interval_s > 0.0 and length_s / policy.interval_s <= _MOST_REPORTS
    if few and not tuned:
        if policy.accuracy_m is not None:
            found.append(_accuracy(policy, policy.accuracy_m))
        else:
            found.append(_reports(policy, length_s))
    found.append(_interval(policy, length_s))
    if few and not tuned and policy.accuracy_m is not None:
        found.append(_reports(policy, length_s))
    return [change for change in found if change is not None]


def _accuracy(policy: Policy, present_m: float) -> Change | None:
    rounded = (mantissa * 10.0**power for power in range(8) for mantissa in _MANTISSAS)
    longer = [m for m in rounded if 1.05 * present_m < m <= _FURTHEST * present_m]
    best = _first(longer, lambda m: replace(policy, accuracy_m=m))
    if best is None:
        return None
    return {"accuracy": f"{best / 1000:g}km" if best >= 1000 else f"{best:g}m", "reports": None}


def _reports(policy: Policy, length_s: float) -> Change | None:
    wanted, present = math.ceil(length_s / policy.interval_s), policy.reports or 0
    more = sorted({math.ceil(wanted * part / 100) for part in range(50, 160, 4)})
    best = _first(
        [count for count in more if count > present],
        lambda count: replace(policy, accuracy_m=None, reports=count),
    )
    return None if best is None else {"reports": str(best), "accuracy": None}


def _interval(policy: Policy, length_s: float) -> Change | None:
    longer = [
        text for text in _INTERVALS if policy.interval_s < _units.duration_s(text) <= length_s / 2
    ]
    best = _first(longer, lambda text: replace(policy, interval_s=_units.duration_s(text)))
    return None if best is None else {"every": best}


def _first(candidates: Sequence[_T], changed: Callable[[_T], Policy]) -> _T | None:
    """The first that lasts. The later of two candidates never spends more."""
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        if _would_last(changed(candidates[middle])):
            high = middle
        else:
            low = middle + 1
    return candidates[low] if low < len(candidates) else None


def _would_last(policy: Policy) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is wrong with the policy itself was said before
            share = lasts_share(
                policy.build_checked(), policy.interval_s, time_zone=policy.time_zone
            )
            return share is not None and share >= SAFE
    except HereishError:
        return False
