"""The page in a real browser: what it draws, what it does, and that it asks nobody for anything."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hereish.traces.guarantee import GuaranteeMetadata
from hereish.viewer.page import page
from tests.support.browser import Look, chromium, opened
from tests.support.show_traces import batch, people

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

HOSTILE = "</script><img src=x onerror=alert(1)>"
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "has_touch": True,
    "is_mobile": True,
}
DESKTOP: dict[str, Any] = {"viewport": {"width": 1320, "height": 900}}
PLACES = "#map .traceplaces path.point"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def text() -> str:
    return page(*people(users=2, days=2, names=["ada", HOSTILE]))


@pytest.fixture
def saved(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.html"
    path.write_text(text, "utf-8")
    return path


@pytest.fixture
def look(browser: Browser, saved: Path) -> Iterator[Look]:
    with opened(browser, saved, **DESKTOP) as seen:
        yield seen
        # Whatever a test did: nothing was asked of others, forbidden, or complained about.
        assert seen.requests[0] == seen.address
        assert seen.elsewhere == []
        assert seen.violations == []
        assert seen.said == []


def page_data(look: Look) -> Any:
    return look.page.evaluate("JSON.parse(document.getElementById('page-data').textContent)")


def ranges(look: Look) -> list[float]:
    """West, east, south and north of the map."""
    found: list[float] = look.page.evaluate(
        "(({xaxis, yaxis}) => [...xaxis.range, ...yaxis.range])"
        "(document.getElementById('map').layout)"
    )
    return found


def wide(look: Look) -> float:
    west, east, _, _ = ranges(look)
    return east - west


def middle(place: Locator) -> tuple[float, float]:
    box = place.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def plot_area(look: Look) -> tuple[float, float, float, float]:
    look.page.locator("#map").scroll_into_view_if_needed()
    box = look.page.locator("#map .nsewdrag").bounding_box()
    assert box is not None
    return box["x"], box["y"], box["width"], box["height"]


def test_it_draws_every_chart_of_the_day(look: Look, tmp_path: Path) -> None:
    view = page_data(look)["views"][0]
    count = look.page.locator
    assert count(PLACES).count() == len(view["places"]["lat"]) > 3
    assert count("#map .tracetrue path.point").count() == len(view["true"]["lat"])
    assert count("#errors path.point").count() == view["points"]
    assert count("#histogram .point path").count() == len(view["bins"]["counts"])
    assert count("#budget path.js-line").count() == 1
    assert "This page contains true positions." in count(".warning").first.inner_text()
    assert "at most 10 times as likely" in count("#guarantee").inner_text()
    tiles = count("#tiles").inner_text()
    assert re.search(r"budget used\s+\d+ %", tiles)
    assert re.search(rf"reports for {view['points']} points\s+{view['reports']}\b", tiles)
    picture = tmp_path / "page.png"
    look.page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 30_000


def test_hovering_over_a_reported_place_tells_which_times_it_served(look: Look) -> None:
    view = page_data(look)["views"][0]
    counts = view["places"]["count"]
    most = counts.index(max(counts))
    lines = look.page.locator("#map .shapelayer path")
    before = lines.count()
    plot_area(look)
    look.page.mouse.move(*middle(look.page.locator(PLACES).nth(most)))
    label = look.page.locator("#map .hoverlayer .hovertext")
    label.wait_for()
    told = label.text_content() or ""
    assert f"Served {max(counts)} times" in told
    assert f"… and {max(counts) - 12} more" in told
    clocks = look.page.evaluate(
        "(times) => times.map((ms) => new Date(ms).toISOString().slice(11, 16))",
        view["places"]["times"][most],
    )
    assert len(clocks) == 12
    assert all(clock in told for clock in clocks)
    assert lines.count() == before + 1, "lines lead to the true positions"
    look.page.mouse.move(5, 5)
    label.wait_for(state="detached")
    look.until(lambda: lines.count() == before)


def test_the_wheel_and_a_box_zoom_the_map_and_a_double_click_undoes_it(look: Look) -> None:
    x, y, width, height = plot_area(look)
    mouse, whole = look.page.mouse, ranges(look)
    bar = look.page.locator("#map .annotation-text").inner_html
    length = bar()
    mouse.move(x + width / 2, y + height / 2)
    for _ in range(8):
        mouse.wheel(0, -300)
        look.page.wait_for_timeout(60)
    look.until(lambda: wide(look) < 0.6 * (whole[1] - whole[0]))
    look.until(lambda: bar() != length)  # the scale follows
    mouse.dblclick(x + width / 2, y + height / 2)
    look.until(lambda: ranges(look) == pytest.approx(whole))
    mouse.move(x + 0.2 * width, y + 0.2 * height)
    mouse.down()
    mouse.move(x + 0.5 * width, y + 0.5 * height, steps=5)
    mouse.up()
    look.until(lambda: wide(look) == pytest.approx(0.3 * (whole[1] - whole[0]), rel=0.1))
    boxed = ranges(look)
    # Still one metre as long to the east as to the north.
    lat = page_data(look)["views"][0]["true"]["lat"][0]
    east = (boxed[1] - boxed[0]) / width
    north = (boxed[3] - boxed[2]) / height
    assert north / east == pytest.approx(
        look.page.evaluate("(lat) => Math.cos((lat * Math.PI) / 180)", lat), rel=0.01
    )


def test_people_and_days_can_be_chosen(look: Look) -> None:
    views = page_data(look)["views"]
    person, day = look.page.locator("#person"), look.page.locator("#day")
    assert person.locator("option").all_text_contents() == ["ada", HOSTILE]
    assert day.locator("option").all_text_contents()[2] == "all days"
    numbers = [len(views[i]["places"]["lat"]) for i in (0, 2, 3)]
    assert len(set(numbers)) == 3, "or this would show nothing"
    day.select_option(label="all days")
    look.until(lambda: look.page.locator(PLACES).count() == numbers[1])
    person.select_option(label=HOSTILE)
    look.until(lambda: look.page.locator(PLACES).count() == numbers[2])
    assert f"for {views[3]['points']} points" in look.page.locator("#tiles").inner_text()
    assert look.page.locator("img").count() == 0


def test_the_legend_hides_what_is_clicked(look: Look) -> None:
    plot_area(look)
    entries = look.page.locator("#map .legend .traces")
    entries.filter(has_text="reported positions").locator(".legendtoggle").click()
    look.until(lambda: look.page.locator(PLACES).count() == 0)
    assert look.page.locator("#map .tracetrue path.point").count() > 0


def test_a_picture_can_be_saved_and_nothing_sends_it_away(look: Look) -> None:
    plot_area(look)
    look.page.locator("#map").hover()
    titles = [
        (button.get_attribute("data-title") or "").lower()
        for button in look.page.locator("#map .modebar-btn").all()
    ]
    assert titles == [
        "download plot as a png",
        "zoom",
        "pan",
        "zoom in",
        "zoom out",
        "reset axes",
    ]
    with look.page.expect_download() as download:
        look.page.locator("#map .modebar-btn").first.click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Browser, saved: Path, tmp_path: Path, scheme: str) -> None:
    with opened(browser, saved, color_scheme=scheme, **PHONE) as look:
        wide = look.page.evaluate("document.documentElement.scrollWidth")
        assert wide == PHONE["viewport"]["width"]
        for chart in ("map", "budget", "errors", "histogram"):
            box = look.page.locator(f"#{chart} .main-svg").first.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= wide
        assert "Tap a reported position" in look.page.locator("#how").inner_text()
        assert "Hover" not in look.page.locator("main").inner_text()
        look.page.locator("#map").scroll_into_view_if_needed()
        look.page.touchscreen.tap(*middle(look.page.locator(PLACES).first))
        look.page.locator("#map .hoverlayer .hovertext").wait_for()
        assert "Served" in (look.page.locator("#map .hoverlayer").text_content() or "")
        look.page.screenshot(path=tmp_path / "phone.png", full_page=True)
        assert (look.elsewhere, look.violations, look.said) == ([], [], [])


def test_it_says_what_it_does_not_know(browser: Browser, tmp_path: Path) -> None:
    true, reported, guarantee = people(users=1, days=1)
    late = batch(
        [*(reported.at_us * 1e-6), 1.0],
        [*zip(reported.lat, reported.lon, strict=True), (1.0, 1.0)],
    )
    path = tmp_path / "page.html"
    not_private = dataclasses.replace(guarantee, statement="for tests", private=False)
    path.write_text(page(true, late, not_private), "utf-8")
    with opened(browser, path) as look:
        words = look.page.locator("main").inner_text()
        assert "NOT PRIVATE. for tests" in words
        assert "1 reports have no true point" in words
        assert "does not tell what each report cost" in words
        colour = look.page.locator("#guarantee").evaluate("(e) => getComputedStyle(e).color")
        assert colour == "rgb(201, 42, 42)"
        assert (look.elsewhere, look.violations, look.said) == ([], [], [])


def test_what_was_left_out_by_time_is_not_drawn_as_refused(
    browser: Browser, tmp_path: Path
) -> None:
    at_s = 1e9 + 60.0 * np.arange(61)
    walk = np.column_stack([60.0 + 1e-4 * np.arange(61), np.full(61, 25.0)])
    asked = np.arange(0, 61, 10)
    public = batch(at_s[asked[:5]], walk[asked[:5]] + 0.002)  # two of seven were refused
    path = tmp_path / "page.html"
    path.write_text(page(batch(at_s, walk), public, GuaranteeMetadata("…", every_s=600.0)), "utf-8")
    with opened(browser, path, **DESKTOP) as look:
        assert look.page.locator("#map .tracerefused path.point").count() == 2
        tiles = look.page.locator("#tiles").inner_text()
        assert re.search(r"refused\s+2\b", tiles)
        assert re.search(r"left out, within 10 min of another\s+54\b", tiles)
        assert "refused" in look.page.locator("#map .legend").text_content()  # type: ignore[operator]  # there is one
        assert (look.elsewhere, look.violations, look.said) == ([], [], [])


def test_many_refused_points_do_not_hide_the_trace(browser: Browser, tmp_path: Path) -> None:
    """Their circles are drawn below it: the legend promises a trace in its own colour."""
    n = 1500
    at_s = 1e9 + 2.0 * np.arange(n)
    walk = np.column_stack([60.0 + 1e-5 * np.arange(n), np.full(n, 25.0)])
    path = tmp_path / "page.html"
    path.write_text(page(batch(at_s, walk), batch(at_s[:1], walk[:1]), None), "utf-8")
    with opened(browser, path, **DESKTOP) as look:
        order = look.page.evaluate(
            "[...document.querySelectorAll('#map .scatterlayer > .trace')].map("
            "(e) => /trace(links|refused|true|places)/.exec(e.getAttribute('class'))[1])"
        )
        assert order == ["links", "refused", "true", "places"]


def test_the_legend_counts_the_lines_that_are_drawn(browser: Browser, tmp_path: Path) -> None:
    n = 9000  # of which 5000 are drawn at most
    at_s = 1e9 + 5.0 * np.arange(n)
    walk = np.column_stack([60.0 + 1e-5 * np.arange(n), np.full(n, 25.0)])
    path = tmp_path / "page.html"
    path.write_text(page(batch(at_s, walk), batch(at_s, walk + 0.01), None), "utf-8")
    with opened(browser, path, **DESKTOP) as look:
        legend = look.page.locator("#map .legend").text_content() or ""
        lines = look.page.evaluate("document.getElementById('map').data[0].x.length / 3")
        assert f"which belongs to which ({lines} of 9,000)" in legend


def test_the_buttons_of_the_histogram_hide_none_of_its_names(look: Look) -> None:
    look.page.locator("#histogram").hover()
    buttons = look.page.locator("#histogram .modebar").bounding_box()
    names = look.page.locator("#histogram .annotation").all()
    assert buttons is not None
    assert len(names) == 2
    for name in names:
        box = name.bounding_box()
        assert box is not None
        assert box["y"] >= buttons["y"] + buttons["height"] - 2


PLANTED = {
    "image": '<img src="https://example.org/x.png">',
    "script": '<script src="https://example.org/x.js"></script>',
    "frame": '<iframe src="https://example.org/"></iframe>',
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_policy_stops_what_was_planted_and_the_test_sees_it(
    browser: Browser, tmp_path: Path, text: str, name: str
) -> None:
    path = tmp_path / "page.html"
    path.write_text(text.replace("<main>", f"<main>{PLANTED[name]}", 1), "utf-8")
    with opened(browser, path) as look:
        assert any("example.org" in violation for violation in look.violations)
        assert look.sent == []
        assert any("Content Security Policy" in words for words in look.said)


@pytest.mark.parametrize("name", PLANTED)
def test_without_the_policy_the_request_is_seen(
    browser: Browser, tmp_path: Path, text: str, name: str
) -> None:
    open_door = text.replace("Content-Security-Policy", "X-Nothing", 1)
    path = tmp_path / "page.html"
    path.write_text(open_door.replace("<main>", f"<main>{PLANTED[name]}", 1), "utf-8")
    with opened(browser, path) as look:
        look.until(lambda: bool(look.sent))
        assert any(address.startswith("https://example.org/") for address in look.elsewhere)


@pytest.mark.parametrize(
    ("code", "directive"),
    [
        ("fetch('https://example.org/')", "connect-src"),
        ("new WebSocket('wss://example.org/')", "connect-src"),
        ("setTimeout('1')", "script-src"),
        ("document.body.setAttribute('onclick', 'alert(1)')", "script-src"),
    ],
)
def test_not_even_a_script_gets_out(
    browser: Browser, saved: Path, code: str, directive: str
) -> None:
    with opened(browser, saved) as look:
        look.page.evaluate(f"(async () => {{ try {{ await {code}; }} catch {{}} }})()")
        look.until(lambda: any(found.startswith(directive) for found in look.violations))
        assert look.sent == []
