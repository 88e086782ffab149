"""Findings in a few lines, over one person or many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hereish.attack.findings import Findings, UsualPlace
from hereish.attack.home import WITHIN_M


def summary_rows(found: Sequence[Findings]) -> list[tuple[str, str]]:
    """Names and values, of what there is to say."""
    rows = [
        (
            "releases",
            f"{sum(one.releases for one in found):,}, of which "
            f"{sum(one.hard for one in found):,} are fresh noise and "
            f"{sum(one.tested for one in found):,} tell the outcome of a test",
        ),
        ("position, region of 50 %", _length(_mean(found, lambda one: one.region_50_m))),
        ("position, region of 90 %", _length(_mean(found, lambda one: one.region_90_m))),
    ]
    rows += _place_rows("home", [one.home for one in found])
    rows += _place_rows("work", [one.work for one in found])
    rows.append(("places with stays", f"{np.mean([len(one.places) for one in found]):.1f}"))
    odds = [one for one in found if one.promised_log_odds > 0.0]
    if odds:
        told = max(abs(one.log_odds) / one.promised_log_odds for one in odds)
        rows.append(("of the odds that are promised", f"{told:.0%} at most, of 100 %"))
    scored = [one for one in found if one.error_m is not None]
    if scored:
        rows += [
            ("error of the observer", _length(_mean(scored, lambda one: one.error_m))),
            ("error of the service", _length(_mean(scored, lambda one: one.service_error_m))),
            ("truth in the region of 90 %", _percent([one.held_90 for one in scored])),
            ("true places found within 200 m", _percent([one.places_found for one in scored])),
        ]
    roads = [one for one in scored if one.road_error_m is not None]
    if roads:
        rows.append(("error on the roads", _length(_mean(roads, lambda one: one.road_error_m))))
    ranks = [one.rank for one in found if one.rank is not None]
    if ranks:
        first = float(np.mean(np.array(ranks) == 1))
        rows.append(("named at the first guess", f"{first:.0%}, median rank {np.median(ranks):g}"))
    return rows


def _place_rows(name: str, places: Sequence[UsualPlace | None]) -> list[tuple[str, str]]:
    known = [place for place in places if place is not None]
    if not known:
        return [(name, "nothing was released in its hours")]
    sure = [_percent([place.sure[metres] for place in known]) for metres in WITHIN_M]
    names = " / ".join(f"{metres:g}" for metres in WITHIN_M)
    rows = [(f"{name}: sure to be within {names} m", " / ".join(sure))]
    errors = [place.error_m for place in known if place.error_m is not None]
    if errors:
        found = [_percent([error <= metres for error in errors]) for metres in WITHIN_M]
        rows.append((f"{name}: found within {names} m", " / ".join(found)))
        plain = [
            _percent(
                [
                    place.median_error_m is not None and place.median_error_m <= metres
                    for place in known
                ]
            )
            for metres in WITHIN_M
        ]
        rows.append((f"{name}: by the geometric median", " / ".join(plain)))
    return rows


def _mean(found: Sequence[Findings], values: Callable[[Findings], Any]) -> float:
    return float(np.concatenate([values(one) for one in found]).mean())


def _length(metres: float) -> str:
    return f"{metres:.0f} m" if metres < 1000.0 else f"{metres / 1000.0:.3g} km"


def _percent(shares: Sequence[Any]) -> str:
    known = [float(share) for share in shares if share is not None and share == share]
    return f"{np.mean(known):.0%}" if known else "–"
