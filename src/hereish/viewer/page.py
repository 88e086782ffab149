"""One page with a true and a reported trace, which opens from disk and needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any
from zoneinfo import ZoneInfo

from hereish.core.windows import Day
from hereish.errors import HereishError
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.table import RELEASED_KINDS, RowBatch
from hereish.viewer.pairs import pair_points
from hereish.viewer.views import build_views

_SCRIPTS = ("shared.js", "map.js", "charts.js", "page.js")
# The styles that Plotly writes as text: an empty sheet or attribute that its script fills later,
# and the one of <b>, which our script uses in its labels. Everything else it sets is no text.
_PLOTLY_STYLES = ("", "font-weight:bold")
# It would add a sheet for tile maps too, but not if something on the page has its name already.
_SHEET = re.compile(r'document\.getElementById\("([0-9a-f]{64})"\)')


def page(
    true: RowBatch,
    reported: RowBatch,
    guarantee: GuaranteeMetadata | None = None,
    time_zone: str | None = None,
) -> str:
    """The text of a page of HTML for the owner's eyes. It holds the true positions.

    Times are local times of `time_zone`, or else of the guarantee's time zone, or else UTC.
    """
    zone = time_zone or (guarantee.time_zone if guarantee is not None else None) or "UTC"
    Day(zone)  # raises if there is no such time zone
    pairs = pair_points(true, reported, guarantee, ZoneInfo(zone))
    views, left_out = build_views(pairs)
    data = {
        "users": pairs.names,
        "kinds": RELEASED_KINDS,
        "zone": zone,
        "guarantee": guarantee and {"statement": guarantee.statement, "private": guarantee.private},
        "every_s": None if guarantee is None else guarantee.every_s,
        "unmatched": pairs.unmatched,
        "left_out": left_out,
        "views": views,
    }
    library, style = plotly(), _resource("page.css")
    script = "\n".join(map(_resource, _SCRIPTS))
    return Template(_resource("page.html")).substitute(
        policy=html.escape(content_security_policy([library, script], [style, *_PLOTLY_STYLES])),
        style=style,
        taken="".join(f'<meta id="{name}">' for name in dict.fromkeys(_SHEET.findall(library))),
        page_data=json_for_script(data),
        library=library,
        script=script,
    )


def content_security_policy(scripts: list[str], styles: list[str]) -> str:
    """A policy by which nothing may be fetched, and nothing may run but these scripts."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hashes(scripts)}",
            f"style-src 'unsafe-hashes' {_hashes(styles)}",  # attributes too may be these texts
            "img-src data: blob:",  # a picture of a chart is drawn from one
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def json_for_script(value: Any) -> str:
    """JSON that can be put inside a script element, whatever texts are in it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def plotly() -> str:
    """The drawing library, from the installed package."""
    spec = find_spec("plotly")  # without importing it, which is slow
    places = (spec and spec.submodule_search_locations) or []
    for place in places:
        path = Path(place) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path.read_text("utf-8")
    raise HereishError("pictures need more: pip install 'hereish[show]'")


def _resource(name: str) -> str:
    return (files("hereish.viewer") / name).read_text("utf-8")


def _hashes(texts: list[str]) -> str:
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
