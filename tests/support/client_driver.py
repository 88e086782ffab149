"""Calls both clients of a gateway in the same way, with made-up reports and responses."""

from __future__ import annotations

import asyncio
import traceback
from datetime import UTC, datetime
from typing import Any

from hereish import client
from tests.support.scripted_gateway import (
    answer,
)

TOKEN = "a-token-that-nobody-may-see"  # noqa: S105  # of no gateway


HERE = (60.1699123, 24.9384567)


SECRETS = (TOKEN, "60.16", "24.93", "1699123", "9384567")


NOON = datetime(2026, 5, 5, 12, tzinfo=UTC)


RELEASE: dict[str, Any] = {
    "lat": 60.18,
    "lon": 24.95,
    "at": "2026-05-05T12:00:00Z",
    "kind": "easy",
    "cost": 0.001,
    "spent": 0.004,
    "remaining": 0.019,
    "window": "the reports of 2026-05-05 (UTC)",
    "eps_test": 0.001,
    "eps_noise": 0.002,
    "threshold_m": 900.0,
}


BUDGET: dict[str, Any] = {
    "user": "ann",
    "device": "phone",
    "spent": 0.004,
    "remaining": 0.019,
    "total": 0.023,
    "window": "the reports of 2026-05-05 (UTC)",
    "guarantee": "For each day: …",
    "exhausted": False,
    "something": "newer",
}


OK = answer(200, RELEASE)


class Driver:
    """Calls one of the two clients, as a program would."""

    def __init__(self, waits: bool) -> None:
        self.waits = waits

    def __call__(self, url: str, method: str, *args: Any, **kwargs: Any) -> Any:
        settings = {name: kwargs.pop(name) for name in ("retries", "timeout_s") if name in kwargs}
        if self.waits:
            with client.Client(url, TOKEN, **settings) as gateway:
                result = getattr(gateway, method)(*args, **kwargs)
                return list(result) if method == "history" else result

        async def run() -> Any:
            async with client.AsyncClient(url, TOKEN, **settings) as gateway:
                result = getattr(gateway, method)(*args, **kwargs)
                if method == "history":
                    return [release async for release in result]
                return await result

        return asyncio.run(run())


def texts(error: BaseException) -> str:
    """All that a traceback prints of an error and of those it carries, and its own state."""
    chain = [error, error.__cause__, error.__context__]
    shown = "".join(traceback.format_exception(error)) + repr(chain)
    return shown + "".join(str(vars(link)) for link in chain if link is not None)
