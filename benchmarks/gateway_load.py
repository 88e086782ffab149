"""A load on a server, from a process of its own: gateway_load.py PORT SECONDS RATE START_S < TOKENS

Each token is a connection that sends report after report. RATE 0 sends as fast as answers come;
otherwise all together send so many a second, whether or not answers have come, and latency counts
from when a report should have been sent. Prints reports per second and the 50th and 99th percentile
of the latency in milliseconds. Times begin at START_S and never come twice, so no report is free.
"""

from __future__ import annotations

import asyncio
import sys
import time

import numpy as np


class Sender:
    """One keep-alive connection with one token; times and places go on from report to report."""

    def __init__(self, port: int, token: str, number: int, start_s: float) -> None:
        self._port, self._token, self._number, self._sent = port, token, number, 0
        self._start_s = start_s
        self.latencies_s: list[float] = []

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def report(self, since_s: float | None = None) -> None:
        self._sent += 1
        step = self._sent % 7
        body = (
            f'{{"lat": {60.0 + self._number / 100 + step / 1000}, "lon": {24.9 + step / 1000}, '
            f'"at": {self._start_s + self._sent}}}'
        )
        head = (
            f"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        start_s = time.perf_counter() if since_s is None else since_s
        self._writer.write((head + body).encode())
        headers = await self._reader.readuntil(b"\r\n\r\n")
        if not headers.startswith(b"HTTP/1.1 200"):
            raise SystemExit(headers.decode())
        length = int(headers.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await self._reader.readexactly(length)
        self.latencies_s.append(time.perf_counter() - start_s)


async def full(senders: list[Sender], until_s: float) -> None:
    async def go(sender: Sender) -> None:
        while time.perf_counter() < until_s:
            await sender.report()

    await asyncio.gather(*map(go, senders))


async def paced(senders: list[Sender], rate: float, seconds: float) -> None:
    """Each sender has its own timetable; together they make the rate."""
    gap_s = len(senders) / rate

    async def go(number: int, sender: Sender) -> None:
        due_s = began_s + gap_s * number / len(senders)
        while due_s < began_s + seconds:
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            await sender.report(due_s)
            due_s += gap_s

    began_s = time.perf_counter()
    await asyncio.gather(*(go(i, sender) for i, sender in enumerate(senders)))


async def main() -> None:
    port = int(sys.argv[1])
    seconds, rate, start_s = map(float, sys.argv[2:])
    senders = [Sender(port, line.strip(), i, start_s) for i, line in enumerate(sys.stdin)]
    for sender in senders:
        await sender.connect()
        await sender.report()  # so that nothing is done for the first time while it counts
        sender.latencies_s.clear()
    began_s = time.perf_counter()
    if rate:
        await paced(senders, rate, seconds)
    else:
        await full(senders, began_s + seconds)
    took_s = time.perf_counter() - began_s
    latencies = np.concatenate([sender.latencies_s for sender in senders])
    half, most = np.percentile(latencies, [50, 99]) * 1e3
    print(len(latencies) / took_s, half, most)


if __name__ == "__main__":
    asyncio.run(main())
