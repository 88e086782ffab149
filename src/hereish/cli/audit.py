"""`hereish audit`: what a mechanism gives away, measured from outside."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import click

from hereish.cli import REFUTED, _units
from hereish.cli._command_lines import is_on_command_line
from hereish.cli._formatting import format_count, format_distance, format_table
from hereish.cli._gateway_options import PolicyOptions, policy_options
from hereish.cli._mechanism_options import parse_privacy
from hereish.cli._options import QUIET, RUNNING, Command, collect, json_flag, option
from hereish.cli._progress import Progress
from hereish.errors import ParameterError

if TYPE_CHECKING:
    from hereish.audit import Audit, BlackBox
    from hereish.core.mechanism import PredictiveMechanism

EXAMPLE = """\b
Examples:
  hereish audit --within 5s
  hereish audit --reports 4 --mechanism independent --distance 100m --distance 300m --within 5s
  hereish audit --accuracy 1km --runs 20000 --json
  hereish audit hereish.audit.controls:sound --runs 5000

\b
Exit codes: 0 no violation was found, 3 the claim is refuted; others as of all commands.
"""
_TERMS = (
    "claim      the most that may be lost in the event that was found, in nats (ln of a factor): "
    "booked\n           epsilon times distance\n"
    "at least   the lower bound on what is lost in it\n"
    "seen from  what would have refuted the claim, 9 times out of 10, in an event as common"
)
_PAIRS = "Which traces are compared"
_EVERY_S = 1800.0
# What a function is not asked for: it is the mechanism.
_CLAIMED = ("level", "radius", "every")


@dataclass(frozen=True)
class AuditOptions:
    """Which traces are compared, and how thoroughly."""

    length: int
    latitude: tuple[float, ...]
    distance: tuple[str, ...]
    runs: int | None
    within: str
    alpha: float
    seed: int | None


audit_options = collect(
    "chosen",
    AuditOptions,
    option(
        _PAIRS,
        "--length",
        type=click.IntRange(2, 50),
        default=4,
        show_default=True,
        help="Reports of each trace.",
    ),
    option(
        _PAIRS,
        "--latitude",
        type=click.FloatRange(-90.0, 90.0),
        multiple=True,
        metavar="DEGREES",
        help="Where traces are; may be repeated. 0 and 60.17 if not given.",
    ),
    option(
        _PAIRS,
        "--distance",
        multiple=True,
        metavar="LENGTH",
        help="How far apart traces are; may be repeated. The radius if not given, and where fresh "
        "noise may lose 1 nat.",
    ),
    option(
        RUNNING,
        "--runs",
        type=click.IntRange(2000),
        help="Runs of each trace. As many as fit into --within if not given.",
    ),
    option(
        RUNNING,
        "--within",
        default="40s",
        show_default=True,
        metavar="DURATION",
        help="About how long it may take.",
    ),
    option(
        RUNNING,
        "--alpha",
        type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
        default=1e-6,
        show_default=True,
        help="How likely a true claim may be refuted by mistake, over all pairs and events.",
    ),
    option(RUNNING, "--seed", type=int, help="For numbers that can be reproduced, with --runs."),
)


@click.command(cls=Command, epilog=EXAMPLE, short_help="whether the promise holds, from outside")
@click.argument("black_box", required=False, metavar="[MODULE:FUNCTION]")
@policy_options
@audit_options
@QUIET
@json_flag("The same numbers for programs.")
def command(
    black_box: str | None,
    options: PolicyOptions,
    chosen: AuditOptions,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run pairs of traces through a mechanism many times, look for what tells them apart, and
    compare it with what is claimed. The mechanism is that of the options, as in hereish plan, or
    any function: then --level and --radius say what it claims for all reports of a trace together.

    An audit can refute a claim and never prove one; the guarantee of hereish is a theorem.
    """
    from hereish.audit import audit, default_pairs, load_mechanism, pairs_for

    latitudes = chosen.latitude or None
    distances_m = [_units.length_m(one) for one in chosen.distance] or None
    every_s = _EVERY_S if options.every in (None, "0") else _units.duration_s(options.every)
    mechanism: PredictiveMechanism | BlackBox
    if black_box is None:
        mechanism = options.policy().build()
        privacy = mechanism.privacy
        pairs = pairs_for(mechanism, chosen.length, latitudes, distances_m)
    else:
        _refuse_options_of_ours()
        mechanism = load_mechanism(black_box)
        privacy = parse_privacy(options.level, options.radius)
        pairs = default_pairs(privacy, chosen.length, latitudes, distances_m)
    with Progress("auditing", quiet, "pairs") as progress:
        found = audit(
            mechanism,
            privacy,
            pairs,
            every_s=every_s,
            runs=chosen.runs,
            within_s=_units.duration_s(chosen.within),
            alpha=chosen.alpha,
            seed=chosen.seed,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2))
    elif not quiet or found.refuted:
        click.echo(describe(found, chosen.length))
    if found.refuted:
        click.get_current_context().exit(REFUTED)


def describe(found: Audit, length: int) -> str:
    """The pairs as a table, the verdict, and what would have been noticed."""
    lines = [["two traces", "apart", "claim", "at least", "seen from"]]
    for pair in found.pairs:
        sharpest = pair.sharpest
        mark = " REFUTED" if pair.result.refuted else ""
        lines.append(
            [
                pair.name + mark,
                format_distance(pair.apart_m),
                _nats(sharpest.claim),
                _nats(sharpest.loss),
                _nats(pair.seen_from),
            ]
        )
    return (
        f"{len(found.pairs)} pairs of traces of {format_count(length, 'report')}, "
        f"{format_count(found.runs, 'run')} of each trace; events were chosen on one half and "
        f"counted on the other. All bounds hold together, but for a chance of {found.alpha:g}.\n\n"
        f"{format_table(lines)}\n\n{_TERMS}\n\n{_verdict(found)}"
    )


def _verdict(found: Audit) -> str:
    pair = found.sharpest
    sharpest = pair.sharpest
    if found.refuted:
        return (
            f"The claim is REFUTED ({pair.name}): what was released is at least "
            f"{_factor(sharpest.loss)} times as likely from one trace as from the other, and at "
            f"most {_factor(sharpest.claim)} times was claimed."
        )
    text = "No violation was found."
    if found.reach <= 0.0:
        return f"{text} Nothing that tells the traces apart was found either: use more --runs."
    text += f" The sharpest bound ({pair.name}) attains {found.reach:.0%} of what is claimed."
    keenest = found.keenest
    if keenest is None:
        return (
            f"{text} But no violation could have been seen in events as rare as those that were "
            "found: use more --runs."
        )
    event = keenest.sharpest
    return (
        f"{text} An event as common as the one found for {keenest.name} "
        f"({event.hits / keenest.result.runs:.2%} of runs) would have been noticed, 9 times out of "
        f"10, if it lost {keenest.seen_from_share:.2f} times what is claimed for it. An audit can "
        "refute a claim and never prove one."
    )


def _nats(loss: float) -> str:
    if math.isinf(loss):
        return "never" if loss > 0.0 else "-"
    return f"{max(loss, 0.0):.3f}"


def _factor(loss: float) -> str:
    return f"{math.exp(min(max(loss, 0.0), 700.0)):.4g}"


def _refuse_options_of_ours() -> None:
    for field in fields(PolicyOptions):
        if field.name not in _CLAIMED and is_on_command_line(field.name):
            flag = f"--{field.name.replace('_', '-')}"
            raise ParameterError(
                f"{flag} describes a mechanism of hereish, and a function is given: leave out one "
                "of them"
            )
