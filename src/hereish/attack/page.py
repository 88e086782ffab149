"""What an observer found out, on one page that opens from disk and needs no network."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from hereish.attack.findings import Findings, UsualPlace
from hereish.attack.home import WITHIN_M, local_seconds
from hereish.attack.summary import summary_rows
from hereish.core.types import Floats
from hereish.viewer.page import content_security_policy, json_for_script, plotly

MOST_PEOPLE = 50  # of a page
MOST_DRAWN = 3000  # times of a person
# The styles that Plotly writes as text, and the sheet that it would add for tile maps.
_PLOTLY_STYLES = ("", "font-weight:bold")
_SHEET = re.compile(r'document\.getElementById\("([0-9a-f]{64})"\)')


def page(found: Sequence[Findings], time_zone: str, statement: str | None = None) -> str:
    """The text of a page of HTML. With the truth it is for the owner's eyes."""
    scored = any(one.truth is not None for one in found)
    data = {
        "scored": scored,
        "zone": time_zone,
        "statement": statement,
        "left_out": max(0, len(found) - MOST_PEOPLE),
        "summary": summary_rows(found),
        "people": [_person(one, time_zone) for one in found[:MOST_PEOPLE]],
    }
    library, script = plotly(), _resource("page.js")
    style = (files("hereish.viewer") / "page.css").read_text("utf-8")
    return Template(_resource("page.html")).substitute(
        policy=html.escape(content_security_policy([library, script], [style, *_PLOTLY_STYLES])),
        style=style,
        taken="".join(f'<meta id="{name}">' for name in dict.fromkeys(_SHEET.findall(library))),
        page_data=json_for_script(data),
        library=library,
        script=script,
    )


def _person(one: Findings, time_zone: str) -> dict[str, Any]:
    rows = np.arange(len(one.at_s))
    if len(rows) > MOST_DRAWN:
        rows = np.linspace(0, len(rows) - 1, MOST_DRAWN).astype(np.int64)
    return {
        "user": one.user,
        "rows": summary_rows([one]),
        "at_ms": (local_seconds(one.at_s[rows], time_zone) * 1000.0).round().tolist(),
        "released": _columns(one.value[rows]),
        "track": _columns(one.track[rows]),
        "region_50_m": np.round(one.region_50_m[rows], 1).tolist(),
        "region_90_m": np.round(one.region_90_m[rows], 1).tolist(),
        "roads": None if one.road_track is None else _columns(one.road_track[rows]),
        "truth": None if one.truth is None else _columns(one.truth[rows]),
        "places": _columns(one.places[:20]) | {"hours": np.round(one.place_hours[:20], 1).tolist()},
        "home": _usual(one.home),
        "work": _usual(one.work),
    }


def _usual(place: UsualPlace | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {
        "lat": round(place.lat, 6),
        "lon": round(place.lon, 6),
        "radius_m": round(place.region_90_m, 1),
        "sure": [round(place.sure[metres], 4) for metres in WITHIN_M],
    }


def _columns(points: Floats) -> dict[str, list[float | None]]:
    known = [all(map(math.isfinite, point)) for point in points.tolist()]
    return {
        name: [
            round(value, 6) if there else None
            for value, there in zip(points[:, axis].tolist(), known, strict=True)
        ]
        for axis, name in enumerate(("lat", "lon"))
    }


def _resource(name: str) -> str:
    return (files("hereish.attack") / name).read_text("utf-8")
