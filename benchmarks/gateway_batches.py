"""A neighbour that keeps a gateway busy: gateway_batches.py PORT CONNECTIONS START_S < TOKEN

Sends batches of Overland with a thousand points each over so many connections at once, the next
one when the last is answered, until it is terminated. Times begin at START_S and never come twice,
so that every point is a new report.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime

POINTS = 1000


def body(start_s: float) -> bytes:
    """A batch as the app sends it, without what nobody reads."""
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [24.9 + i % 7 / 1000, 60.1]},
            "properties": {"timestamp": datetime.fromtimestamp(start_s + i, UTC).isoformat()},
        }
        for i in range(POINTS)
    ]
    return json.dumps({"locations": features}).encode()


async def send(port: int, token: str, start_s: float, step_s: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        sent = body(start_s)
        start_s += step_s
        head = (
            f"POST /overland HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        )
        writer.write(head.encode() + sent)
        headers = await reader.readuntil(b"\r\n\r\n")
        if not headers.startswith(b"HTTP/1.1 200"):
            raise SystemExit(headers.decode())
        length = int(headers.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        await reader.readexactly(length)


async def main() -> None:
    port, connections, start_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    token = sys.stdin.readline().strip()
    step_s = float(POINTS * connections)
    starts = [start_s + POINTS * i for i in range(connections)]
    await asyncio.gather(*(send(port, token, at_s, step_s) for at_s in starts))


if __name__ == "__main__":
    asyncio.run(main())
