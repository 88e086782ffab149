"""The owner's page in a real browser: the releases as a map and as text, and refreshing them."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest

from tests.support.page_stage import (
    MARKS,
    ROWS,
    TOKEN,
    Stage,
    Visit,
    has_rows,
    names,
    release,
    releases,
    signed_in,
    text,
)


def spots(look: Visit) -> list[tuple[float, float]]:
    """Where the marks are in the map, oldest first."""
    moves = [mark.get_attribute("transform") or "" for mark in look.page.locator(MARKS).all()]
    pairs = [re.findall(r"-?\d[\d.e+-]*", move) for move in moves]
    return [(float(x), float(y)) for x, y in pairs]


def apart_m(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The distance over the sphere."""
    lat, lon, lat_2, lon_2 = map(math.radians, (one["lat"], one["lon"], other["lat"], other["lon"]))
    half = (
        math.sin((lat_2 - lat) / 2) ** 2
        + math.cos(lat) * math.cos(lat_2) * math.sin((lon_2 - lon) / 2) ** 2
    )
    return 2 * 6371008.8 * math.asin(math.sqrt(half))


def px_per_m(look: Visit) -> float:
    """As the scale bar tells it."""
    length, unit = (look.page.locator("#map .scale text").text_content() or "").split()
    bar = look.page.locator("#map .scale path").get_attribute("d") or ""
    found = re.search(r"h([\d.]+)", bar)
    assert found is not None
    return float(found[1]) / (float(length) * {"m": 1, "km": 1000}[unit])


# --- releases, as a map and as text


def test_each_release_has_a_mark_and_a_row(look: Visit, stage: Stage) -> None:
    signed_in(look)
    marks = look.page.locator(MARKS)
    assert marks.count() == len(stage.history) == look.page.locator(ROWS).count()
    kinds = [mark.get_attribute("class") for mark in marks.all()]
    assert kinds == [one["kind"] for one in reversed(stage.history)]
    shapes = {mark.get_attribute("class"): mark.get_attribute("d") for mark in marks.all()}
    assert len(set(shapes.values())) == 3  # not by colour alone
    assert look.page.locator("#map .reaches circle").count() == len(stage.history)


def test_rows_tell_the_time_of_the_policys_clocks(look: Visit) -> None:
    signed_in(look)
    first = names(look.page.locator(f"{ROWS}:first-child td"))
    assert first == [
        "5 May 2026, 12:11:00",
        "untested",
        "nothing",
        "60.17270° N, 24.93440° E, an untested guess",
        "phone",
    ]
    assert "Europe/Helsinki" in text(look, "#releases-about")
    assert names(look.page.locator(f"{ROWS}:nth-child(3) td"))[1:3] == ["hard", "2 %"]


def test_a_time_zone_that_the_browser_does_not_know_becomes_utc(look: Visit, stage: Stage) -> None:
    stage.budget["time_zone"] = "Mars/Olympus"
    signed_in(look)
    assert names(look.page.locator(f"{ROWS}:first-child td"))[0] == "5 May 2026, 09:11:00"
    assert "UTC" in text(look, "#releases-about")


def test_the_line_goes_through_the_marks_in_time_and_the_ring_is_at_the_newest(look: Visit) -> None:
    signed_in(look)
    line = look.page.locator("#map .line polyline").get_attribute("points") or ""
    through = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert through == spots(look)
    ring = look.page.locator("#map .ring circle")
    assert (
        float(ring.get_attribute("cx") or "nan"),
        float(ring.get_attribute("cy") or "nan"),
    ) == spots(look)[-1]


PLACES = {
    "Helsinki": [(60.16, 24.90), (60.17, 24.99), (60.19, 24.93)],
    "the equator": [(-0.01, 0.0), (0.01, 0.03), (0.0, -0.02)],
    "the antimeridian": [(-16.80, 179.98), (-16.82, -179.97), (-16.79, 179.99), (-16.81, -180.0)],
    "the north pole": [(89.99, 0.0), (89.995, 120.0), (89.98, -110.0), (90.0, 0.0)],
    "near the south pole": [(-89.9, 10.0), (-89.91, 50.0), (-89.89, 30.0)],
    "one country": [(60.2, 24.9), (65.0, 25.5), (67.9, 23.7)],
}


@pytest.mark.parametrize("name", PLACES)
def test_distances_in_the_map_are_those_on_the_ground(look: Visit, stage: Stage, name: str) -> None:
    """So marks stay together across the antimeridian and around a pole, in the right aspect."""
    stage.history = [release(lat, lon, i) for i, (lat, lon) in enumerate(PLACES[name])][::-1]
    signed_in(look)
    scale = px_per_m(look)
    pairs = combinations(zip(spots(look), reversed(stage.history), strict=True), 2)
    for (here, one), (there, other) in pairs:
        assert math.dist(here, there) / scale == pytest.approx(apart_m(one, other), rel=0.01)
    box = look.page.locator("#map").bounding_box()
    assert box is not None
    assert all(0 < x < box["width"] and 0 < y < box["height"] for x, y in spots(look))


def test_north_is_up_and_east_is_right(look: Visit, stage: Stage) -> None:
    stage.history = [release(-16.7, -179.99, 2), release(-16.8, -179.99, 1)]
    stage.history.append(release(-16.8, 179.99, 0))
    signed_in(look)
    west, east, north = spots(look)
    assert west[0] < east[0]
    assert north[1] < east[1]


def test_one_release_alone_is_in_the_middle(look: Visit, stage: Stage) -> None:
    stage.history = releases(1)
    signed_in(look)
    box = look.page.locator("#map").bounding_box()
    assert box is not None
    assert spots(look)[0] == pytest.approx((box["width"] / 2, box["height"] / 2), abs=2)


def test_a_circle_is_as_large_as_the_release_is_rough(look: Visit, stage: Stage) -> None:
    stage.history = [release(60.1, 24.9, 0, accuracy_m=321.0)]
    signed_in(look)
    radius = look.page.locator("#map .reaches circle").get_attribute("r")
    assert float(radius or "nan") == pytest.approx(321.0 * px_per_m(look), rel=1e-3)


def test_pointing_at_a_mark_tells_its_time_kind_and_cost(look: Visit) -> None:
    signed_in(look)
    assert "12:11:00, untested, cost nothing" in text(look, "#readout")
    look.page.locator(MARKS).nth(0).hover()
    assert text(look, "#readout") == "5 May 2026, 12:00:00, hard, cost 2 %, give or take 180 m"
    look.page.locator("#left").hover()
    assert "12:11:00" in text(look, "#readout")


def test_releases_at_one_place_are_counted(look: Visit, stage: Stage) -> None:
    stage.history = [release(60.1, 24.9, 2), release(60.1, 24.9, 1), release(60.1, 24.9, 0)]
    signed_in(look)
    assert look.page.locator(MARKS).count() == 3
    assert look.page.locator("#map .reaches circle").count() == 1
    assert text(look, "#readout").endswith("2 other releases at the same place")


def test_the_keyboard_signs_in_and_walks_through_the_releases(look: Visit) -> None:
    keyboard = look.page.keyboard
    keyboard.type(TOKEN)  # the field has the focus
    keyboard.press("Enter")
    look.page.wait_for_selector(MARKS)
    look.page.locator("#zoom-fit").focus()
    keyboard.press("Tab")
    keyboard.press("ArrowLeft")
    assert "12:10:00, easy" in text(look, "#readout")
    focused = look.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "12:10:00, easy, cost 0.5 %" in focused
    keyboard.press("Home")
    assert "12:00:00" in text(look, "#readout")
    keyboard.press("ArrowLeft")  # there is none before
    assert "12:00:00" in text(look, "#readout")
    keyboard.press("End")
    assert "12:11:00" in text(look, "#readout")
    keyboard.press("Tab")  # the map is one stop, however many marks it has
    assert look.page.evaluate("document.activeElement.id") == "releases-box"


def test_zooming_dragging_and_fitting_move_the_map(look: Visit) -> None:
    signed_in(look)
    fitted, scale = spots(look), px_per_m(look)
    look.page.get_by_role("button", name="Zoom in").click()
    assert px_per_m(look) == pytest.approx(1.6 * scale, rel=1e-3)
    look.page.get_by_role("button", name="Zoom out").click()
    assert px_per_m(look) == pytest.approx(scale, rel=1e-3)
    box = look.page.locator("#map").bounding_box()
    assert box is not None
    look.page.mouse.move(box["x"] + 40, box["y"] + 40)
    look.page.mouse.down()
    look.page.mouse.move(box["x"] + 90, box["y"] + 60)
    look.page.mouse.up()
    assert spots(look)[0] == pytest.approx((fitted[0][0] + 50, fitted[0][1] + 20), abs=0.1)
    look.page.get_by_role("button", name="Fit").click()
    assert spots(look) == fitted


def test_nothing_released_yet_is_said_kindly(look: Visit, stage: Stage) -> None:
    stage.history = []
    signed_in(look)
    assert "Nothing has been released yet" in text(look, "#nothing")
    assert look.page.locator("#map").is_hidden()
    assert look.page.locator("#more").is_hidden()


def test_show_more_fetches_the_older_ones_to_the_end(look: Visit, stage: Stage) -> None:
    stage.most = 5
    signed_in(look)
    more = look.page.get_by_role("button", name="Show more")
    for expected in (10, 12):
        more.click()
        has_rows(look, expected)
    assert more.is_hidden()
    assert look.page.locator(MARKS).count() == 12
    times = names(look.page.locator("#releases .time"))
    assert times == sorted(set(times), reverse=True)


def test_a_release_that_comes_on_two_pages_is_shown_once(look: Visit, stage: Stage) -> None:
    stage.most, stage.overlap = 5, timedelta(seconds=1)
    signed_in(look)
    look.page.get_by_role("button", name="Show more").click()
    has_rows(look, 9)
    times = names(look.page.locator("#releases .time"))
    assert times == sorted(set(times), reverse=True)


# --- refreshing


def on_its_clock(look: Visit) -> Visit:
    """Signed in, with the time of the page in our hands."""
    look.page.clock.install()
    look.page.reload()
    return signed_in(look)


def test_it_refreshes_each_half_minute(look: Visit, stage: Stage) -> None:
    on_its_clock(look)
    stage.history = releases(13)
    stage.budget.update(remaining=0.005, spent=0.015)
    look.page.clock.run_for(29_000)
    assert look.page.locator(MARKS).count() == 12
    look.page.clock.run_for(1_500)
    look.until(lambda: look.page.locator(MARKS).count() == 13)
    assert text(look, "#left") == "25 % of today's budget is left"
    assert "12:12:00" in text(look, f"{ROWS}:first-child")


def test_a_refresh_keeps_the_older_ones_and_where_they_end(look: Visit, stage: Stage) -> None:
    stage.most = 5
    on_its_clock(look)
    look.page.get_by_role("button", name="Show more").click()
    has_rows(look, 10)
    stage.history = releases(13)
    look.page.clock.run_for(30_500)
    has_rows(look, 11)
    look.page.get_by_role("button", name="Show more").click()
    has_rows(look, 13)
    times = names(look.page.locator("#releases .time"))
    assert times == sorted(set(times), reverse=True)


def test_a_refresh_after_a_long_time_leaves_no_hole(look: Visit, stage: Stage) -> None:
    stage.most = 5
    on_its_clock(look)
    stage.history = releases(30)
    look.page.clock.run_for(30_500)
    look.until(lambda: "12:29:00" in text(look, f"{ROWS}:first-child"))
    assert look.page.locator(ROWS).count() == 5  # what was known before does not follow these
    look.page.get_by_role("button", name="Show more").click()
    has_rows(look, 10)
    assert "12:20:00" in text(look, f"{ROWS}:last-child")


def test_a_refresh_leaves_a_moved_map_and_the_focus_alone(look: Visit, stage: Stage) -> None:
    on_its_clock(look)
    look.page.locator(MARKS).nth(3).focus()
    look.page.keyboard.press("+")
    before = spots(look)
    stage.history = releases(13)
    look.page.clock.run_for(30_500)
    look.until(lambda: look.page.locator(MARKS).count() == 13)
    assert spots(look)[:12] == before
    focused = look.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "12:03:00" in focused


def test_a_hidden_page_asks_for_nothing_until_it_is_seen_again(look: Visit, stage: Stage) -> None:
    on_its_clock(look)
    hide = "Object.defineProperty(document, 'hidden', {get: () => %s, configurable: true})"
    look.page.evaluate(hide % "true")
    asked = len(stage.asked)
    look.page.clock.run_for(120_000)
    assert len(stage.asked) == asked
    look.page.evaluate(hide % "false")
    look.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    look.until(lambda: len(stage.asked) == asked + 3)
    look.page.wait_for_load_state("networkidle")
