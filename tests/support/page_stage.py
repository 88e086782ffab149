"""A stage for the owner's page: a real server with canned answers, and a browser that looks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from hereish.gateway.http.owner_page import FILES, HEADERS
from tests.support.browser import Look
from tests.support.browser import chromium as chromium  # for the tests

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Locator

TOKEN = "t0ken-of-the-phone-4711"  # noqa: S105  # it opens nothing but this stage
NOON = datetime(2026, 5, 5, 9, 0, tzinfo=UTC)  # in Helsinki
DESKTOP: dict[str, Any] = {"viewport": {"width": 1200, "height": 900}}
MARKS = "#map .marks path"
ROWS = "#releases tr"
_LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def release(lat: float, lon: float, minute: int, **more: Any) -> dict[str, Any]:
    return {
        "lat": lat,
        "lon": lon,
        "at": (NOON + timedelta(minutes=minute)).isoformat(),
        "kind": ("hard", "easy", "untested")[minute % 3],
        "cost": (0.0004, 0.0001, 0.0)[minute % 3],
        "accuracy_m": 180.0,
        "window": "the reports of 2026-05-05 (Europe/Helsinki)",
        "device": "phone",
        **more,
    }


def releases(n: int) -> list[dict[str, Any]]:
    """A walk through Helsinki, newest first; no two at one place."""
    walk = [
        release(60.165 + 0.0007 * i, 24.93 + 0.0011 * ((i * 7) % 11) + 0.0004 * i, i)
        for i in range(n)
    ]
    return walk[::-1]


def _budget() -> dict[str, Any]:
    return {
        "user": "ada",
        "device": "phone",
        "spent": 0.0124,
        "remaining": 0.0076,
        "total": 0.02,
        "window": "the reports of 2026-05-05 (Europe/Helsinki)",
        "guarantee": "For the reports of each day: whatever is released is at most 7.389 times as "
        "likely from one trace as from any other that stays within 100 m of it.",
        "exhausted": False,
        "forecast": {
            "window_ends": "2026-05-05T21:00:00+00:00",
            "looked_until": "2026-05-05T21:00:00+00:00",
            "lasts_share": 1.0,
            "ends_early": None,
            "ends_typical": None,
            "ends_late": None,
        },
        "limits": [],
        "policy": "whole-day (a budget that lasts the day, for anybody)",
        "reports": 143,
        "interval_s": 60,
        "time_zone": "Europe/Helsinki",
    }


def _devices() -> dict[str, Any]:
    return {
        "day": "2026-05-05",
        "devices": [
            {"device": "phone", "points_today": 1234},
            {"device": "watch", "points_today": 7},
        ],
    }


@dataclass
class Stage:
    """What the server answers, which a test may change at any time, and what it was asked."""

    prefix: str = ""
    address: str = ""
    token: str = TOKEN
    budget: dict[str, Any] = field(default_factory=_budget)
    devices: dict[str, Any] = field(default_factory=_devices)
    history: list[dict[str, Any]] = field(default_factory=lambda: releases(12))  # newest first
    most: int = 500  # releases in one answer
    overlap: timedelta = timedelta()  # how much of the page before a next page repeats
    status: int | None = None  # what to answer instead
    gate: threading.Event = field(default_factory=threading.Event)  # answers of the API wait for it
    asked: list[str] = field(default_factory=list)  # paths with queries
    answered: list[str] = field(default_factory=list)
    position: str | None = None  # how far the ledger has come, as the answer for the budget says
    positions: list[str | None] = field(default_factory=list)  # that were shown for the budget

    def answer(self, target: str, authorization: str | None) -> tuple[int, str, bytes]:
        """Status, media type and content."""
        parts = urlsplit(target)
        if not parts.path.startswith(self.prefix):
            return 404, "text/plain", b""
        path = parts.path.removeprefix(self.prefix)
        if path in FILES:
            return 200, *FILES[path]
        if authorization != f"Bearer {self.token}":
            return 401, "application/json", b"{}"
        if self.status is not None:
            return self.status, "text/plain", b"<script>alert(1)</script>"
        told = self._told(path, parse_qs(parts.query))
        status = 404 if told is None else 200
        return status, "application/json", json.dumps(told).encode()

    def _told(self, path: str, query: dict[str, list[str]]) -> dict[str, Any] | None:
        if path == "/v1/history":
            limit = min(int(query["limit"][0]), self.most)
            before = datetime.fromisoformat(query.get("before", ["2999-01-01T00:00:00Z"])[0])
            before += self.overlap
            older = [one for one in self.history if datetime.fromisoformat(one["at"]) < before]
            more = len(older) > limit
            return {"releases": older[:limit], "next": older[limit - 1]["at"] if more else None}
        return {"/v1/budget": self.budget, "/v1/devices": self.devices}.get(path)


@dataclass
class Visit(Look):
    """The page in a browser, and what it did."""

    refused: bool = False  # an answer was no answer, and the browser may say so as well


@contextmanager
def staged(prefix: str = "") -> Iterator[Stage]:
    """A server on this computer, with the page and its headers under `prefix`."""
    stage = Stage(prefix)
    stage.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stage.asked.append(self.path)
            if "/v1/budget" in self.path:
                stage.positions.append(self.headers["Hereish-Ledger-Position"])
            if "/v1/" in self.path:
                stage.gate.wait(10)
            status, media_type, content = stage.answer(self.path, self.headers["Authorization"])
            with suppress(ConnectionError):  # the page may leave before the answer
                self.send_response(status)
                for name, value in HEADERS.items():
                    self.send_header(name, value)
                if "/v1/budget" in self.path and stage.position is not None:
                    self.send_header("Hereish-Ledger-Position", stage.position)
                if status == 401:
                    self.send_header("WWW-Authenticate", "Bearer")
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            stage.answered.append(self.path)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stage.address = f"http://127.0.0.1:{server.server_port}{prefix}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stage
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def visited(browser: Browser, stage: Stage, **settings: Any) -> Iterator[Visit]:
    """The page in a tab of its own; nothing outside the stage can be reached from it."""
    context = browser.new_context(**settings)
    look = Visit(context.new_page(), stage.address)

    def dismiss(dialog: Dialog) -> None:
        look.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    context.route(
        lambda address: not address.startswith(stage.address), lambda route: route.abort()
    )
    look.page.on("request", lambda request: look.requests.append(request.url))
    look.page.on("websocket", lambda socket: look.requests.append(socket.url))
    look.page.on("console", lambda message: look.said.append(f"{message.type}: {message.text}"))
    look.page.on("pageerror", lambda error: look.said.append(f"uncaught: {error}"))
    look.page.on("dialog", dismiss)
    look.page.add_init_script(_LISTEN)
    look.page.set_default_timeout(10_000)
    look.page.goto(look.address)
    yield look
    check(look)
    context.close()


def check(look: Visit) -> None:
    """Whatever a test did: nothing asked of others, forbidden, complained about, or given away."""
    assert [url for url in look.requests if not url.startswith(look.address)] == []
    assert [url for url in look.requests if TOKEN in url] == []
    assert TOKEN not in look.page.url
    assert look.violations == []
    excused = "error: Failed to load resource" if look.refused else "\0"
    assert [said for said in look.said if not said.startswith(excused)] == []


def sign_in(look: Visit, token: str = TOKEN) -> None:
    look.page.get_by_label("Device token").fill(token)
    look.page.get_by_role("button", name="Sign in").click()


def signed_in(look: Visit) -> Visit:
    sign_in(look)
    look.page.wait_for_selector("#updated:not(:empty)")
    return look


def text(look: Visit, selector: str) -> str:
    return look.page.locator(selector).inner_text()


def problem(look: Visit) -> str:
    """What the page complains about."""
    look.page.wait_for_selector("#problem:not(:empty)")
    look.refused = True
    return text(look, "#problem")


def kept(look: Visit) -> dict[str, str]:
    found: dict[str, str] = look.page.evaluate("({...sessionStorage, ...localStorage})")
    return found


def names(locator: Locator) -> list[str]:
    return [name.strip() for name in locator.all_inner_texts()]


def has_rows(look: Visit, n: int) -> None:
    """Wait until this many releases are listed."""
    look.until(lambda: look.page.locator(ROWS).count() == n)
