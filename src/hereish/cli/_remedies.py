"""Other settings, with which a budget would last for its whole window."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from hereish.cli import _units
from hereish.core.settings import LASTING, Preset
from hereish.errors import HereishError
from hereish.forecast import lasts_share

if TYPE_CHECKING:
    from hereish.gateway.ledger.policy import Policy

# The share of the made-up days on which a recommended budget must last; real days fall a little
# short of it.
_SAFE_SHARE = 0.95
_INTERVALS = (
    *("1min", "2min", "5min", "10min", "15min", "20min", "30min", "45min"),
    *("1h", "90min", "2h", "3h", "4h", "6h", "8h", "12h"),
)
_MANTISSAS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
_LARGEST_FACTOR = 8.0  # an accuracy that is coarser by more than this is no remedy
_MOST_REPORTS = 150  # per window: beyond it only a longer interval is looked for
_DAY_S = 86400.0

_T = TypeVar("_T")
# The options of a command that are to be different; None: to be left out.
Change = dict[str, str | None]


def find_remedies(policy: Policy, *, tuned: bool = False) -> list[Change]:
    """Changes of the options with which the budget lasts for its whole window.

    The smallest change of each kind, found by the same forecast. The accuracy of a settings file
    (`tuned`) cannot be changed by an option.
    """
    if policy.window == "none" or (policy.window != "day" and float(policy.window) > _DAY_S):
        return []
    length_s = _DAY_S if policy.window == "day" else float(policy.window)
    changes: list[Change | None] = []
    few = policy.interval_s > 0.0 and length_s / policy.interval_s <= _MOST_REPORTS
    accuracy_m = policy.accuracy_in_force_m
    if not tuned:
        changes.append(_last_the_window(policy))
    if few and not tuned and accuracy_m is not None:
        changes.append(_change_accuracy(policy, accuracy_m))
    if few and not tuned and policy.reports is not None:
        changes.append(_change_reports(policy, length_s))
    changes.append(_change_interval(policy, length_s))
    return [change for change in changes if change is not None]


def _last_the_window(policy: Policy) -> Change | None:
    """The budget spread over the window, with whatever accuracy that gives."""
    preset: Preset = "whole-day"
    if policy.preset is not None and policy.preset in LASTING:
        preset = policy.preset
    if policy.chosen_preset == preset and policy.accuracy_m is None and policy.reports is None:
        return None
    lasting = replace(
        policy,
        preset=preset,
        mechanism="predictive",
        accuracy_m=None,
        reports=None,
        skip_kmh=None,
    )
    if not _would_last(lasting):
        return None
    left_out = dict.fromkeys(("accuracy", "reports", "mechanism", "skip_speed"), None)
    return left_out | {"preset": preset}


def _change_accuracy(policy: Policy, present_m: float) -> Change | None:
    rounded = (mantissa * 10.0**power for power in range(8) for mantissa in _MANTISSAS)
    longer = [m for m in rounded if 1.05 * present_m < m <= _LARGEST_FACTOR * present_m]
    best = _first_that_lasts(longer, lambda m: replace(policy, accuracy_m=m))
    if best is None:
        return None
    return {"accuracy": f"{best / 1000:g}km" if best >= 1000 else f"{best:g}m"}


def _change_reports(policy: Policy, length_s: float) -> Change | None:
    wanted, present = math.ceil(length_s / policy.interval_s), policy.reports or 0
    more = sorted({math.ceil(wanted * part / 100) for part in range(50, 160, 4)})
    best = _first_that_lasts(
        [count for count in more if count > present],
        lambda count: replace(policy, reports=count),
    )
    return None if best is None else {"reports": str(best)}


def _change_interval(policy: Policy, length_s: float) -> Change | None:
    longer = [
        text for text in _INTERVALS if policy.interval_s < _units.duration_s(text) <= length_s / 2
    ]
    best = _first_that_lasts(longer, lambda text: _with_interval(policy, _units.duration_s(text)))
    return None if best is None else {"every": best}


def _with_interval(policy: Policy, interval_s: float) -> Policy:
    every_s = None if policy.every_s is None else interval_s
    return replace(policy, interval_s=interval_s, every_s=every_s)


def _first_that_lasts(candidates: Sequence[_T], change: Callable[[_T], Policy]) -> _T | None:
    """The first that lasts. The later of two candidates never spends more."""
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        if _would_last(change(candidates[middle])):
            high = middle
        else:
            low = middle + 1
    return candidates[low] if low < len(candidates) else None


def _would_last(policy: Policy) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the policy itself has been warned of
            share = lasts_share(
                policy.build_checked(), policy.interval_s, time_zone=policy.time_zone
            )
            return share is not None and share >= _SAFE_SHARE
    except HereishError:
        return False
