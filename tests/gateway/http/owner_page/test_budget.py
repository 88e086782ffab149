"""The owner's page in a real browser: the budget and the devices."""

from __future__ import annotations

import pytest

from tests.support.page_stage import (
    Stage,
    Visit,
    names,
    signed_in,
    text,
)


def test_the_budget_is_told_in_per_cent_and_words(look: Visit) -> None:
    signed_in(look)
    assert text(look, "#left") == "38 % of today's budget is left"
    assert text(look, "#spent") == (
        "62 % is spent (0.0124 of 0.02), on 143 reports, at most one every 60 s."
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


def test_budgets_of_longer_windows_are_shown(look: Visit, stage: Stage) -> None:
    month = {"window": "the reports of 2026-05 (Europe/Helsinki)", "total": 0.06}
    ever = {"window": "all reports together", "total": 0.2, "spent": 0.2, "remaining": 0.0}
    limits = [{**month, "spent": 0.045, "remaining": 0.015}, ever]
    stage.budget.update(limits=limits, exhausted=True)
    signed_in(look)
    assert text(look, "#limits") == (
        "25 % is left of the budget that covers the reports of 2026-05 (Europe/Helsinki). "
        "0 % is left of the budget that covers all reports together."
    )
    assert "that covers all reports together is used up" in text(look, "#exhausted")


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


def at(clock: str, day: int = 5) -> str:
    return f"2026-05-0{day}T{clock}:00+03:00"


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({}, "is expected to last until Wed 00:00, when a fresh budget begins."),
        (
            {"ends_early": at("22:30"), "lasts_share": 0.8},
            "until Wed 00:00, when a fresh budget begins; on 20 % of ordinary days it is spent "
            "sooner, from Tue 22:30 on.",
        ),
        (
            {"ends_early": at("11:30"), "ends_typical": at("12:30"), "ends_late": at("14:00")},
            "spent at about Tue 12:30 (between Tue 11:30 and Tue 14:00).",
        ),
        (
            {"ends_early": at("20:00"), "ends_typical": at("23:30")},
            "spent at about Tue 23:30 (from Tue 20:00 on).",
        ),
        (
            {"window_ends": None, "lasts_share": None, "looked_until": at("13:00")},
            "is expected to last beyond 5 May 2026, 13:00:00.",
        ),
    ],
)
def test_it_says_when_the_rest_is_expected_to_end(
    look: Visit, stage: Stage, expected: dict[str, object], words: str
) -> None:
    stage.budget["forecast"].update(expected)
    signed_in(look)
    assert text(look, "#forecast").replace(",", "").endswith(words.replace(",", ""))
    assert "whole-day (a budget that lasts the day" in text(look, "#policy")


def test_a_spent_budget_has_no_forecast(look: Visit, stage: Stage) -> None:
    stage.budget.update(remaining=0.0, spent=0.02, exhausted=True, forecast=None)
    signed_in(look)
    assert look.page.locator("#forecast").is_hidden()


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
