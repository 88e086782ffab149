"""The page of the leaderboard: every number in it comes from the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hereish.evaluation.study import Row

_BEFORE = """# Leaderboard

Every combination of decision, guess, memory and remapping that makes sense, tuned on {training}
users of {dataset} and scored on the {held_out} others. This page was written by

`{command}`

Each mechanism's numbers are found by {trials} trials on the training users
([Tuning](tuning.md)). What is *not private* is no mechanism to use: a test that is exact and free
is what no private test can beat, and so the bound.

## What a report costs

The rate is the average cost of a report, as a share of the budget, at the noise with which errors
of the scored users are on average at most {mean_m:.0f} m and in nine of ten cases at most
{p90_m:.0f} m: averaged over traces / pooled over reports. A dash: no noise that was tried reaches
these limits.

"""
_FITTED = """
With the noise that was found on the training users instead, with room for the others to vary, the
rate of the scored users (95 % interval over users), and their average error:

"""
_FRONTIER = """
## The frontier

Rate against average error, each mechanism over its noise with one set of numbers. The closer to
the lower left, the better.
"""
_DAYS = """
## Whole days

How far off a receiver is, with a query every {minutes:g} minutes from the first fix of a day until
midnight ([Whole days](evaluation.md#whole-days)):

"""
_AFTER = """
Places are those that the mechanism has released before: in the same trace, or in all traces of the
user, one after the other. Remapping uses a prior of the training users' points
([Priors](priors.md)).
"""


def format_page(rows: Sequence[Row], about: dict[str, Any], figures: Sequence[str]) -> str:
    """The page in Markdown; `figures` are the paths of files beside it."""
    traces = [row for row in rows if row["sampling"] != "days"]
    days = [row for row in rows if row["sampling"] == "days"]
    parts = [_BEFORE.format(**about), _format_traces(traces, _format_at_limits), _FITTED]
    parts += [_format_traces(traces, _format_fitted)]
    if figures:
        parts.append(_FRONTIER)
        parts += [f"\n![Average error against rate]({name})\n" for name in figures]
    if days:
        parts += [_DAYS.format(minutes=days[0]["every_s"] / 60), _format_days(days)]
    return "".join([*parts, _AFTER])


def label_of(row: Row) -> str:
    """The name of a mechanism, with a warning where it is not private."""
    return str(row["mechanism"]) + ("" if row["private"] else " (not private)")


def _format_at_limits(row: Row) -> str:
    rate, pooled = row.get("rate_at_limits"), row.get("rate_pooled_at_limits")
    return "-" if rate is None or pooled is None else f"{rate:.2%} / {pooled:.2%}"


def _format_fitted(row: Row) -> str:
    if row.get("rate") is None:
        return "-"
    ends = f"{row['rate_lo']:.2%} to {row['rate_hi']:.2%}"
    return f"{row['rate']:.2%} ({ends}), {row['error_mean_m']:.0f} m"


def _format_traces(rows: Sequence[Row], form: Callable[[Row], str]) -> str:
    cases = list(dict.fromkeys((row["sampling"], row["p"]) for row in rows))
    head = ["", *(f"{sampling}, p = {p:g}" for sampling, p in cases)]
    lines = []
    for label in dict.fromkeys(map(label_of, rows)):
        own = {(row["sampling"], row["p"]): row for row in rows if label_of(row) == label}
        lines.append([label, *(form(own[case]) for case in cases)])
    return _markdown([head, *lines])


def _format_days(rows: Sequence[Row]) -> str:
    head = ["", "average", "median", "90 %", "99 %", "spent", "ended before 22:00"]
    lines = []
    for row in rows:
        errors = [row[f"belief_{name}_m"] for name in ("mean", "median", "p90", "p99")]
        shares = [row["spent_share"], row["ended_before_22_share"]]
        cells = ["-" if error is None else f"{error:.0f} m" for error in errors]
        lines.append([label_of(row), *cells, *(f"{share:.0%}" for share in shares)])
    return _markdown([head, *lines])


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *others = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|---" * len(lines[0]) + "|", *others]) + "\n"
