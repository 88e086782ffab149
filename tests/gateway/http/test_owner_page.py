"""The owner's page in a real browser: what it shows, keeps and asks for, and that it is told no
more than that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from hereish.gateway.http.owner_page import FILES, HEADERS
from tests.support.page_stage import (
    DESKTOP,
    MARKS,
    ROWS,
    TOKEN,
    Stage,
    Visit,
    chromium,
    kept,
    names,
    problem,
    release,
    sign_in,
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged() as found:
        yield found


@pytest.fixture
def look(browser: Browser, stage: Stage) -> Iterator[Visit]:
    with visited(browser, stage, **DESKTOP) as seen:
        yield seen


# --- files and headers


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


# --- signing in and out


def test_the_token_signs_in_and_stays_in_this_tab_only(look: Visit, stage: Stage) -> None:
    assert look.page.locator("#told").is_hidden()
    signed_in(look)
    assert kept(look) == {"hereish.token": TOKEN}
    assert look.page.evaluate("localStorage.length") == 0
    assert look.page.evaluate("document.cookie") == ""
    assert look.page.get_by_label("Device token").input_value() == ""
    assert look.page.locator("#welcome").is_hidden()
    assert all(TOKEN not in path for path in stage.asked)


def test_the_highest_position_is_kept_and_shown_again(look: Visit, stage: Stage) -> None:
    """A gateway that was set back is told so, also by whoever signs in later."""
    sealed = "A" * 97 + "_-9"
    stage.position = first = f"1700000000.9.{sealed}"
    signed_in(look)
    position = "hereish.position /"
    assert kept(look) == {"hereish.token": TOKEN, position: first}
    for told, expected in (
        (f"1700000000.10.{sealed}", f"1700000000.10.{sealed}"),
        (f"1700000000.9.{sealed}", f"1700000000.10.{sealed}"),
        (f"1600000000.99.{sealed}", f"1700000000.10.{sealed}"),
        (f"1700000001.1.{sealed} y", f"1700000000.10.{sealed}"),
        ("nonsense", f"1700000000.10.{sealed}"),
        (f"1700000001.1.{sealed}", f"1700000001.1.{sealed}"),
    ):
        stage.position = told
        look.page.reload()
        look.page.wait_for_selector("#updated:not(:empty)")
        assert kept(look)[position] == expected
    assert stage.positions[:3] == [None, first, f"1700000000.10.{sealed}"]
    look.page.get_by_role("button", name="Sign out").click()
    assert kept(look) == {position: f"1700000001.1.{sealed}"}


def test_a_reload_stays_signed_in(look: Visit) -> None:
    signed_in(look)
    look.page.reload()
    look.page.wait_for_selector(ROWS)
    assert look.page.locator("#welcome").is_hidden()


def test_a_wrong_token_is_said_and_not_kept(look: Visit, stage: Stage) -> None:
    sign_in(look, "wrong")
    assert "not known" in problem(look)
    assert len([path for path in stage.asked if "/v1/" in path]) == 1  # one wrong attempt, not more
    assert kept(look) == {}
    assert look.page.locator("#told").is_hidden()
    signed_in(look)
    assert look.page.locator("#problem").is_hidden()


def test_a_token_that_no_header_can_hold_is_wrong_without_asking(look: Visit, stage: Stage) -> None:
    sign_in(look, "tökén → 1")
    assert "not known" in problem(look)
    assert [path for path in stage.asked if "/v1/" in path] == []


def test_a_token_that_ends_while_the_page_is_open_signs_out(look: Visit, stage: Stage) -> None:
    stage.most = 5
    signed_in(look)
    stage.token = "another"  # noqa: S105  # it opens nothing
    look.page.get_by_role("button", name="Show more").click()
    assert "not known" in problem(look)
    assert kept(look) == {}
    assert look.page.locator(ROWS).count() == 0


@pytest.mark.parametrize(("status", "words"), [(503, "(503)"), (429, "Too many"), (500, "(500)")])
def test_an_answer_that_is_none_is_said(look: Visit, stage: Stage, status: int, words: str) -> None:
    stage.status = status
    sign_in(look)
    assert words in problem(look)
    stage.status = None
    signed_in(look)
    assert look.page.locator("#problem").is_hidden()


def test_an_answer_from_something_else_is_said(look: Visit, stage: Stage) -> None:
    stage.status = 200
    sign_in(look)
    assert "not understood" in problem(look)
    assert kept(look) == {}


def test_no_connection_is_said_and_what_was_told_stays(look: Visit, stage: Stage) -> None:
    stage.most = 5
    signed_in(look)
    look.page.context.set_offline(True)
    look.page.get_by_role("button", name="Show more").click()
    assert "No connection" in problem(look)
    assert look.page.locator(ROWS).count() == 5
    look.page.context.set_offline(False)
    look.page.get_by_role("button", name="Show more").click()
    look.page.wait_for_selector("#problem", state="hidden")
    assert look.page.locator(ROWS).count() == 10


def test_signing_out_forgets_the_token_and_all_that_was_told(look: Visit, stage: Stage) -> None:
    stage.budget["user"] = "somebody-rare"
    stage.devices["devices"][0]["device"] = "device-rare"
    signed_in(look)
    assert "rare" in look.page.content()
    look.page.get_by_role("button", name="Sign out").click()
    assert kept(look) == {}
    content = look.page.content()
    assert "rare" not in content
    assert "60.1" not in content
    assert "38 %" not in content
    assert look.page.locator(MARKS).count() == 0
    look.page.reload()
    assert look.page.get_by_label("Device token").is_visible()


def test_an_answer_that_comes_after_signing_out_is_not_shown(look: Visit, stage: Stage) -> None:
    signed_in(look)
    stage.gate.clear()
    asked = stage.asked.count("/v1/budget")
    look.page.reload()
    look.until(lambda: stage.asked.count("/v1/budget") > asked)
    look.page.get_by_role("button", name="Sign out").click()
    stage.gate.set()
    look.until(lambda: stage.answered.count("/v1/budget") > asked)
    look.page.evaluate("fetch('page.css').then((answer) => answer.text())")  # a later round trip
    assert len([path for path in stage.asked if path == "/v1/devices"]) == 1  # nor was it gone on
    assert kept(look) == {}
    assert look.page.locator("#told").is_hidden()
    assert look.page.locator("#problem").is_hidden()
    assert look.page.locator("#left").text_content() == ""


def test_it_works_under_a_prefix(browser: Browser) -> None:
    with staged("/far/away") as stage, visited(browser, stage, **DESKTOP) as look:
        signed_in(look)
        assert look.page.locator(MARKS).count() == len(stage.history)


# --- the budget and the devices


def test_the_budget_is_told_in_per_cent_and_words(look: Visit) -> None:
    signed_in(look)
    assert text(look, "#left") == "38 % of today's budget is left"
    assert text(look, "#spent") == (
        "62 % is spent (0.0124 of 0.02), on 143 reports, at most one each 60 s."
    )
    assert "2026-05-05 (Europe/Helsinki)" in text(look, "#window")
    assert "7.389 times as likely" in text(look, "#guarantee")
    meter = look.page.get_by_role("meter", name="Budget left")
    assert meter.get_attribute("aria-valuenow") == "38.0"
    whole, rest = meter.locator("rect").all()
    whole_box, rest_box = whole.bounding_box(), rest.bounding_box()
    assert whole_box is not None
    assert rest_box is not None
    assert rest_box["width"] / whole_box["width"] == pytest.approx(0.38, abs=1e-3)
    assert look.page.locator("#exhausted").is_hidden()


@pytest.mark.parametrize(
    ("remaining", "words"),
    [
        (0.02, "100 %"),
        (0.01999, "more than 99 %"),
        (0.00001, "less than 1 %"),
        (0.0, "0 %"),
        (-1e-18, "0 %"),
    ],
)
def test_the_ends_of_the_budget_are_not_rounded_away(
    look: Visit, stage: Stage, remaining: float, words: str
) -> None:
    stage.budget.update(remaining=remaining, spent=0.02 - remaining)
    signed_in(look)
    assert text(look, "#left") == f"{words} of today's budget is left"


@pytest.mark.parametrize(
    ("remaining", "words"), [(0.0, "The budget is used up"), (0.0002, "too little for another")]
)
def test_an_exhausted_budget_says_so(
    look: Visit, stage: Stage, remaining: float, words: str
) -> None:
    stage.budget.update(remaining=remaining, spent=0.02 - remaining, exhausted=True)
    signed_in(look)
    assert words in text(look, "#exhausted")
    assert "until a fresh budget begins" in text(look, "#exhausted")


def test_a_budget_that_is_not_of_today_is_not_called_so(look: Visit, stage: Stage) -> None:
    stage.budget["window"] = "all reports together"
    signed_in(look)
    assert text(look, "#left") == "38 % of the budget is left"


def test_without_a_smallest_interval_none_is_told(look: Visit, stage: Stage) -> None:
    stage.budget.update(interval_s=0.0, reports=1)
    signed_in(look)
    assert text(look, "#spent") == "62 % is spent (0.0124 of 0.02), on 1 report."


def test_what_is_not_private_stands_out(look: Visit, stage: Stage) -> None:
    stage.budget["guarantee"] = "NOT PRIVATE: the randomness can be repeated by others."
    signed_in(look)
    assert "bad" in (look.page.locator("#guarantee").get_attribute("class") or "")


def test_each_device_has_its_points_of_today(look: Visit) -> None:
    signed_in(look)
    assert names(look.page.locator("#devices td")) == ["phone", "1,234", "watch", "7"]
    assert "2026-05-05" in text(look, "#devices-about")


# --- hostile texts, and small screens


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
            assert contrast(look, f"#told {words}", ".card") >= 4.5, words
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
