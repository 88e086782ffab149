"""The page of `hereish attack` in a real browser: alone, on a desk and on a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hereish
from hereish import synthetic
from hereish.attack.findings import AttackOptions, Findings, attack
from hereish.attack.lattice import Frame
from hereish.attack.page import MOST_PEOPLE, page
from hereish.roads.building import graph_from_lines
from tests.support.browser import chromium, opened
from tests.support.observed import PRIVACY, WINDOW, observed, people

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = "</script><img src=x onerror=alert(1)>"
DRAWN = "#home .points"
SIZES = {"desk": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def found() -> list[Findings]:
    """Two people on two days, with the truth, and a road through their town."""
    at_s, places = people(2, 2)
    ends_m = np.stack([np.linspace(-9e3, 9e3, 91), np.zeros(91)], axis=1)
    line = Frame(*places[0, 0].tolist()).to_degrees(ends_m)
    roads = graph_from_lines([[tuple(point) for point in line.tolist()]], name="a road")
    options = AttackOptions(synthetic.TIME_ZONE, roads=roads)
    m = hereish.whole_day(PRIVACY, window=WINDOW)
    return [
        attack(observed(m, at_s, own), options, user=name, truth=own)
        for name, own in zip((HOSTILE, "b"), places, strict=True)
    ]


@pytest.mark.parametrize("size", SIZES)
def test_the_page_stands_alone_and_fits(
    size: str, found: list[Findings], browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "attack.html"
    path.write_text(page(found, synthetic.TIME_ZONE, HOSTILE), "utf-8")
    width, height = SIZES[size]
    with opened(browser, path, DRAWN, viewport={"width": width, "height": height}) as look:
        assert (look.elsewhere, look.sent, look.said, look.violations) == ([], [], [], [])
        assert look.page.evaluate("document.documentElement.scrollWidth") <= width
        assert look.page.is_visible("#warning")
        assert HOSTILE in look.page.inner_text("#guarantee")
        told = look.page.inner_text("#details")
        look.page.select_option("#person", "1")
        look.until(lambda: look.page.inner_text("#details") != told)
        legend = look.page.text_content("#map .legend") or ""
        names = ("released", "the observer's track", "the truth", "on the roads", "home")
        assert all(name in legend for name in names)


def test_without_the_truth_there_is_none_in_it(found: list[Findings], tmp_path: Path) -> None:
    at_s, places = people(1, 2)
    seen = observed(hereish.whole_day(PRIVACY, window=WINDOW), at_s, places[0])
    plain = attack(seen, AttackOptions(synthetic.TIME_ZONE), user="a")
    text = page([plain] * (MOST_PEOPLE + 3), synthetic.TIME_ZONE)
    start = text.index('id="page-data">') + len('id="page-data">')
    data = json.loads(text[start : text.index("</script>", start)])
    assert data["scored"] is False
    assert len(data["people"]) == MOST_PEOPLE
    assert data["left_out"] == 3
    assert {person["truth"] for person in data["people"]} == {None}
