"""The owner's page in a real browser: signing in and out, what it keeps, and failing requests."""

from __future__ import annotations

import pytest

from tests.support.page_stage import (
    MARKS,
    ROWS,
    TOKEN,
    Stage,
    Visit,
    kept,
    problem,
    sign_in,
    signed_in,
)


def test_the_token_signs_in_and_stays_in_this_tab_only(look: Visit, stage: Stage) -> None:
    assert look.page.locator("#content").is_hidden()
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
    assert look.page.locator("#content").is_hidden()
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
    assert look.page.locator("#content").is_hidden()
    assert look.page.locator("#problem").is_hidden()
    assert look.page.locator("#left").text_content() == ""
