"""The pages of a running gateway in a real browser: the owner's, and the one of the API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from tests.support.page_stage import MARKS, chromium
from tests.support.stage import HELSINKI, Running, member, paths_in, serving, shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    where = paths_in(tmp_path_factory.mktemp("pages"))
    ledger = Ledger.open(where)
    token = member(ledger)
    for i in range(5):
        ledger.report(shown(token), [Fix(*HELSINKI, time.time() - 600 + 60 * i)])
    ledger.close()
    with serving(where) as running:
        yield running, token


def test_the_owner_signs_in_and_sees_their_releases(
    browser: Browser, gateway: tuple[Running, str]
) -> None:
    running, token = gateway
    page = browser.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{running.url}/")
    page.locator("input[type=password]").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_selector(MARKS, state="attached")
    assert page.locator(MARKS).count() == 5
    assert said == []
    assert all(url.startswith(running.url) and token not in url for url in asked)
    words = page.inner_text("body")
    assert "phone" in words
    assert "of today's budget" in words or "%" in words
    page.close()


def test_the_page_of_the_api_asks_nobody_else(
    browser: Browser, gateway: tuple[Running, str]
) -> None:
    running, _ = gateway
    page = browser.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{running.url}/docs")
    page.wait_for_selector('[data-path="/v1/report"]')
    page.wait_for_selector('[data-path="/owntracks"]')
    assert all(url.startswith((running.url, "data:")) for url in asked)
    assert [words for words in said if "Content Security Policy" in words] == []
    page.close()
