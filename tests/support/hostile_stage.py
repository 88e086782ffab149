"""A gateway among enemies: a real server, whose every word is kept and searched for the truth."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from hereish.gateway.admin import accounts
from hereish.gateway.ledger.ledger import Ledger
from tests.support import client_payloads
from tests.support.leaks import TRUE, leaks, leaks_in_files, released_in
from tests.support.stage import Running, member, paths_in, serving

START_S = int(time.time()) - 5 * 86400  # late enough that a damaged time is seldom still past
MINUTES = "60"  # a budget for every minute, so that the mechanism never runs dry
PATIENCE_S = 30.0  # longer than anything here takes; what waits for it has failed
WORDS_OF_PYTHON = (b"Traceback", b'File "', b"site-packages", b"Error:", b"pydantic", b"sqlite")
ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


@dataclass
class Hostile:
    """A server and what it answered."""

    running: Running
    folder: Path
    tokens: dict[str, str]
    client: httpx.Client
    heard: list[bytes] = field(default_factory=list)
    public: frozenset[float] = frozenset()
    _times_s: Iterator[int] = field(default_factory=lambda: count(START_S, 61))

    def ask(
        self, method: str, path: str, user: str | None = "alice", **more: Any
    ) -> httpx.Response:
        """A request, by default with a good token. Whatever it is: no 500 and no word of Python."""
        headers = httpx.Headers(more.pop("headers", {}))
        if user is not None:
            headers["Authorization"] = f"Bearer {self.tokens[user]}"
        answer = self.client.request(method, path, headers=headers, **more)
        head = b"".join(name + b": " + value + b"\r\n" for name, value in answer.headers.raw)
        self.keep(f"{answer.status_code}\r\n".encode() + head + answer.content)
        assert answer.status_code < 500, (method, path, answer.text)
        assert ALWAYS.items() <= dict(answer.headers).items()
        return answer

    def report(self, user: str = "alice", **fields: Any) -> httpx.Response:
        """A report of the true place through /v1."""
        told = {"lat": TRUE.lat, "lon": TRUE.lon, "at": time.time(), **fields}
        return self.ask("POST", "/v1/report", user, json=told)

    def tick(self) -> int:
        """A later time than before, in another window if windows are MINUTES: paid anew."""
        return next(self._times_s)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.running.port), timeout=PATIENCE_S)

    def raw(self, sent: bytes, *, ends: bool = False) -> bytes:
        """What comes back for these bytes until the server closes, or until we do."""
        with self.connect() as wire:
            send_all(wire, sent)
            if ends:
                with suppress(OSError):  # it has hung up already
                    wire.shutdown(socket.SHUT_WR)
            return self.keep(until_closed(wire))

    def keep(self, heard: bytes) -> bytes:
        self.heard.append(heard)
        assert not any(words in heard for words in WORDS_OF_PYTHON), heard
        return heard

    def lives(self) -> bool:
        """The same process still answers."""
        return self.ask("GET", "/readyz", None).status_code == 200 == self.report().status_code

    def released(self) -> int:
        """How often the mechanism answered: if it never did, it had nothing to betray."""
        counted = re.findall(
            r'hereish_points_total{outcome="(?:hard|easy)"} ([\d.]+)',
            self.ask("GET", "/metrics").text,
        )
        return int(sum(map(float, counted)))

    def remember(self) -> frozenset[float]:
        """What was released until now; to be called before any of it is deleted."""
        self.public |= released_in(self.folder / "ledger.db")
        return self.public

    def check_silent(self) -> None:
        """Nothing it wrote or said has the true place in it, nor a defect."""
        self.keep(self.client.get("/metrics").content)
        found = leaks_in_files(self.folder, self.remember())
        said = leaks(b"\n".join(self.heard), self.public)
        assert (found, said) == ({}, []), (found, said)
        lines = self.running.lines()  # each is JSON, so none is a traceback
        wrong = [line for line in lines if "defect" in line or line.get("status", 0) >= 500]
        assert wrong == [], wrong
        assert not any("Traceback" in str(line) for line in lines)


@contextmanager
def hostile(folder: Path, *users: str, rate: float = 0.0, **settings: Any) -> Iterator[Hostile]:
    """A server with these users, one phone each. Searched while it runs and after it has ended."""
    where = paths_in(folder)
    ledger = Ledger.open(where)
    tokens = {name: member(ledger, name, **settings) for name in users or ("alice",)}
    ledger.close()
    with (
        serving(where, rate=rate) as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE_S) as client,
    ):
        stage = Hostile(running, folder, tokens, client)
        yield stage
        stage.check_silent()  # the write-ahead log is there only while it runs
    assert any(line["event"] == "stopped" for line in running.lines())  # in good order
    left = leaks_in_files(folder, stage.remember())
    assert left == {}, left


@contextmanager
def operator(stage: Hostile) -> Iterator[Ledger]:
    """The ledger of a running server, as the commands of its operator open it."""
    ledger = Ledger.open(stage.running.where)
    try:
        yield ledger
    finally:
        ledger.close()


def more_tokens(stage: Hostile, user: str, device: str, **settings: Any) -> str:
    """Another token; it is known by its user's and device's names from here on."""
    with operator(stage) as ledger:
        token = accounts.new_token(ledger, user, device, **settings)
    stage.tokens[f"{user} {device}"] = token
    return token


def payloads(token: str, at_s: float) -> dict[str, tuple[str, str, str, bytes]]:
    """By client: method, path, content type and body, as it would send the true place."""
    lat, lon = TRUE
    query = urlencode(client_payloads.osmand_query(lat, lon, at_s))
    form = urlencode(client_payloads.traccar_client_query(lat, lon, at_s)).encode()
    feature = client_payloads.overland_feature(lat, lon, client_payloads.iso(at_s))
    sent = client_payloads.sent
    as_json, as_form = "application/json", "application/x-www-form-urlencoded"
    v1 = {"lat": lat, "lon": lon, "at": at_s, "id": f"report {at_s}"}
    owntracks = client_payloads.owntracks_ios(lat, lon, at_s)
    traccar = client_payloads.traccar_client_json(lat, lon, at_s)
    return {
        "v1": ("POST", "/v1/report", as_json, sent(v1)),
        "OwnTracks": ("POST", "/owntracks", as_json, sent(owntracks)),
        "Overland": ("POST", "/overland", as_json, sent(client_payloads.overland(feature))),
        "OsmAnd": ("GET", f"/osmand/{token}?{query}", as_form, b""),
        "Traccar form": ("POST", f"/osmand/{token}", as_form, form),
        "Traccar JSON": ("POST", f"/osmand/{token}", as_json, sent(traccar)),
    }


def head(method: str, path: str, *lines: str) -> bytes:
    """The beginning of a request, up to its body."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: here", *lines, "", ""]).encode(
        "latin-1"
    )


def send_all(wire: socket.socket, sent: bytes) -> bool:
    """False if the other side had heard enough."""
    try:
        wire.sendall(sent)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def until_closed(wire: socket.socket) -> bytes:
    """All that comes until the other side closes; a reset is a close too."""
    heard = b""
    try:
        while piece := wire.recv(65536):
            heard += piece
    except ConnectionResetError:
        pass
    return heard


def statuses(heard: bytes) -> list[int]:
    """Of every answer in it."""
    lines = [line for line in heard.split(b"\r\n") if b"HTTP/1." in line[-40:]]
    return [int(line[line.index(b"HTTP/1.") :].split()[1]) for line in lines]


def body_of(answer: httpx.Response) -> Any:
    return json.loads(answer.content)
