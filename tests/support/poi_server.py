"""A points-of-interest service like many: `GET /poi?lat=&lon=&radius=` over HTTP, made-up cafés.

It remembers every request line, which is all that such a service could learn from a query.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from hereish import Sphere

CENTRE = (60.17, 24.94)
KINDS = ("café", "library", "pharmacy", "kiosk")


def made_up(count: int = 4000, seed: int = 7) -> list[dict[str, Any]]:
    """Places in and around a city, as Overpass would have them."""
    chance = np.random.default_rng(seed)
    spread = chance.normal(scale=(0.05, 0.1), size=(count, 2))
    return [
        {"type": "node", "id": i, "lat": lat, "lon": lon, "tags": {"amenity": KINDS[i % 4]}}
        for i, (lat, lon) in enumerate((np.array(CENTRE) + spread).round(7).tolist())
    ]


class PoiServer:
    """The places, and the log of what was asked."""

    def __init__(self) -> None:
        self.places = made_up()
        self.log: list[str] = []
        self.url = ""
        self._at = np.array([[place["lat"], place["lon"]] for place in self.places])

    def within(self, lat: float, lon: float, radius_m: float) -> list[dict[str, Any]]:
        """All places of a circle; no limit on their number, which would break promises."""
        centre = np.broadcast_to(np.array([lat, lon]), self._at.shape)
        inside = Sphere().distance(self._at, centre) <= radius_m
        return [self.places[i] for i in np.flatnonzero(inside)]

    def answer(self, path: str) -> bytes:
        asked = {name: float(value[0]) for name, value in parse_qs(urlsplit(path).query).items()}
        found = self.within(asked["lat"], asked["lon"], asked["radius"])
        return json.dumps({"elements": found}).encode()


@contextmanager
def poi_server() -> Iterator[PoiServer]:
    """The service, on a port of its own."""
    poi = PoiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are two writes; without this each answer would wait for an acknowledgement.
        disable_nagle_algorithm = True

        def do_GET(self) -> None:  # as http.server calls it
            body = poi.answer(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as there
            poi.log.append(f"{self.requestline} {self.headers}")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    poi.url = f"http://127.0.0.1:{server.server_address[1]}/poi"
    try:
        yield poi
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
