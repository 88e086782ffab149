"""A real browser that looks at a page and tells everything the page asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, Route

NAMES = ("chromium", "chromium-browser", "google-chrome")
WITHIN = ("data:", "blob:")  # these stay in the page
_LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def find_chromium() -> str | None:
    """The browser that HEREISH_CHROMIUM names, or one of the usual names; None if there is none."""
    named = os.environ.get("HEREISH_CHROMIUM")
    if named is not None:
        if shutil.which(named) is None:
            raise FileNotFoundError(f"HEREISH_CHROMIUM names no program: {named}")
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser; without one the tests are skipped, and say so."""
    found = find_chromium()
    if found is None:
        pytest.skip(
            f"no browser was looked at: none of {', '.join(NAMES)} is installed "
            "(apt-get install chromium, or name one in HEREISH_CHROMIUM)"
        )
    reason = "no browser was looked at: pip install playwright"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@dataclass
class Look:
    """An open page, and what it did."""

    page: Page
    address: str
    requests: list[str] = field(default_factory=list)  # also those that its policy stopped
    sent: list[str] = field(default_factory=list)  # what would have left this computer
    said: list[str] = field(default_factory=list)  # on the console, and uncaught errors

    @property
    def elsewhere(self) -> list[str]:
        """What it asked of others."""
        return [
            address
            for address in self.requests
            if address != self.address and not address.startswith(WITHIN)
        ]

    @property
    def violations(self) -> list[str]:
        """What its policy forbade."""
        found: list[str] = self.page.evaluate("window.violations")
        return found

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that happens soon."""
        for _ in range(200):
            if true():
                return
            self.page.wait_for_timeout(50)
        raise AssertionError("it did not happen within 10 s")


@contextmanager
def opened(
    browser: Browser, path: Path, drawn: str = "#histogram .points", **settings: Any
) -> Iterator[Look]:
    """The page of a file, as somebody would open it from disk, once its last chart is drawn."""
    context = browser.new_context(**settings)
    look = Look(context.new_page(), path.as_uri())

    def stop(route: Route) -> None:
        look.sent.append(route.request.url)
        route.abort()

    def dismiss(dialog: Dialog) -> None:
        look.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    context.route(lambda address: not address.startswith(("file:", *WITHIN)), stop)
    look.page.on("request", lambda request: look.requests.append(request.url))
    look.page.on("websocket", lambda socket: look.requests.append(socket.url))
    look.page.on("console", lambda message: look.said.append(f"{message.type}: {message.text}"))
    look.page.on("pageerror", lambda error: look.said.append(f"uncaught: {error}"))
    look.page.on("dialog", dismiss)
    look.page.add_init_script(_LISTEN)
    look.page.goto(look.address)
    look.page.wait_for_selector(drawn, state="attached")
    yield look
    context.close()
