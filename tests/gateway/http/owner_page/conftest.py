"""Fixtures of the owner's page: a browser, a gateway on a stage, and a visit to its page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.page_stage import (
    DESKTOP,
    Stage,
    Visit,
    chromium,
    staged,
    visited,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
