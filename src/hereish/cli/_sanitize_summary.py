"""What `hereish sanitize` prints at its end."""

from __future__ import annotations

from typing import Any

from hereish.cli._formatting import format_count, format_distance
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.pacing import Paced
from hereish.core.types import Kind
from hereish.core.windows import Day
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.summary import Summary

# So many times as many guesses as fresh noise: the points are too dense.
_DENSE = 50
_FEW = 5  # files that are listed one by one


def summarise(
    tally: Summary, mechanism: PredictiveMechanism, out: str, every: str | None, replaced: bool
) -> str:
    """What was done. It is computed from the truth: for whoever runs this."""
    spent = "the budget was spent" + ("" if tally.job is None else ", here or by others")
    rows = [*_describe_kinds(tally, mechanism), ("refused", tally.refused, spent)]
    if every is not None:
        rows.append(("thinned", tally.thinned, f"sooner than {every} after the one before"))
    rows += [
        ("repeated" if reason == FAULT_REASONS[Fault.TWICE] else "bad", count, reason)
        for reason, count in tally.bad.items()
    ]
    width = max(len(f"{count:,}") for _, count, _ in rows)
    lines = [
        f"{format_count(tally.points, 'point')} in {format_count(tally.traces, 'trace')} of "
        f"{format_count(tally.users, 'user')}, from {format_count(tally.files, 'file')}:",
        *(f"  {name:9} {count:>{width},}  {reason}" for name, count, reason in rows),
        *(f"  not read: {reason}" for reason in tally.unreadable),
        *_describe_others(tally),
    ]
    lines += _describe_doubts(tally)
    mean, most = tally.displacement_mean_m, tally.displacement_p90_m
    if mean is not None and most is not None:
        lines.append(
            f"Reports lie {format_distance(mean)} from the truth on average, nine out of ten "
            f"within {format_distance(most)}. (Computed from the truth: for your eyes.)"
        )
    lines.append(tally.guarantee)
    if tally.second is not None:
        lines.append(f"A second promise, besides the first. {tally.second}")
    if tally.job is not None:
        lines += _describe_job(tally.job)
    if tally.prior is not None:
        lines.append(f"Fresh noise was moved by a public prior: {tally.prior}.")
    if tally.refused == 0 and tally.easy > _DENSE * tally.hard:
        again = "a longer --every" if every else "--every 30min"
        lines.append(
            "Nearly all reports repeat an earlier one, because the points follow each other "
            f"faster than a budget can: {again} takes fewer points, whose reports lie closer."
        )
    if tally.refused > tally.released and tally.job is None:
        remedy = _describe_remedy(mechanism, every)
        lines.append(f"Most points were refused, because the budget was spent: {remedy}.")
    if replaced:
        lines.append(
            f"{out} was there before and has been replaced. If anybody has seen the old one, both "
            "together reveal up to twice as much."
        )
    return "\n".join(lines)


def _describe_others(tally: Summary) -> list[str]:
    """Files that were found and hold no points."""
    lines = [f"  no points: {reason}" for reason in tally.without_points[:_FEW]]
    if len(tally.without_points) > _FEW:
        more = len(tally.without_points) - _FEW
        lines.append(f"  no points: {format_count(more, 'more file')}")
    if tally.ignored:
        kinds = ", ".join(f"{n:,} {end or 'without an ending'}" for end, n in tally.ignored.items())
        count = format_count(sum(tally.ignored.values()), "other file")
        lines.append(f"  {count} in the folders or archives, of no format that is read: {kinds}")
    return lines


def _describe_doubts(tally: Summary) -> list[str]:
    """Where the points may be read otherwise than they are meant."""
    lines = []
    if tally.possible_users:
        names = " or ".join(map(repr, tally.possible_users))
        lines.append(
            f"All points were taken as one person's, with one budget. If {names} has a value per "
            f"person or vehicle: --user {tally.possible_users[0]}."
        )
    if tally.taken_as_utc:
        lines.append(
            "Times without an offset from UTC were taken as UTC. If they are those of clocks "
            "elsewhere: --time-zone, such as Europe/Helsinki."
        )
    if tally.bad.get(FAULT_REASONS[Fault.TWICE], 0) > tally.points / 2:
        lines.append(
            "Most points have the time of another, and one per time was used. If there is a column "
            "with more exact times: --time COLUMN. If one tells persons or vehicles apart: --user "
            "COLUMN."
        )
    return lines


def _describe_remedy(mechanism: PredictiveMechanism, every: str | None) -> str:
    """What makes a budget last longer."""
    budget = mechanism.budget
    if isinstance(budget, Paced):
        if budget.least_eps_noise:
            return "without --accuracy, or with a larger one, it lasts as long as the points do"
        return "it was shared out among fewer reports than there are: a larger --reports lasts"
    longer = "" if every else " (or a longer time, if they are as far apart already)"
    again = "a longer --every" if every else "--every 5min"
    default = ""
    if isinstance(mechanism.window, Day):
        default = ", and without --accuracy and --reports the budget lasts the day"
    return f"{again} takes fewer points{longer}, so that they last for the whole time{default}"


def _describe_kinds(tally: Summary, mechanism: PredictiveMechanism) -> list[tuple[str, int, str]]:
    """How many reports of each kind, and what that kind is."""
    noise, passed = "fresh noise", "a guess that passed the test"
    if mechanism.tracker is not None and mechanism.tracker.reach:
        noise += ", or its mean with places reported before"
    if isinstance(mechanism.decider, NoiseFirst):
        passed = "a guess that was near the noise drawn: it costs a test, and no noise"
    return [
        (Kind.HARD, tally.hard, noise),
        (Kind.EASY, tally.easy, passed),
        (Kind.UNTESTED, tally.untested, "a guess, for free"),
    ]


def _describe_job(job: dict[str, Any]) -> list[str]:
    """What a job has got of budgets that it shares with others."""
    lines = [
        f"Job {job['name']} is paid for in the ledger: {format_count(job['windows'], 'window')}."
    ]
    if job["reduced"]:
        lines.append(f"  {job['reduced']:,} had less than a whole budget left")
    lines += [f"  {count:,} got nothing: {reason}" for reason, count in job["refused"].items()]
    return lines
