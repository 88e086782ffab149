"""A process that has imported everything and forks gateways: one starts in milliseconds.

Reads a line of JSON for each gateway from standard input and answers with a line. It listens
itself, so that a port outlives the gateway behind it, and who connects between two waits.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from hereish.gateway.http.app import create_app
from hereish.gateway.http.server import make_server
from hereish.gateway.ledger.high_water_mark import HighWaterMark
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.observability import logs
from hereish.gateway.paths import GatewayPaths
from tests.support.stage import HELSINKI, member, paths_in, shown

_listening: dict[int, socket.socket] = {}


def _listen(port: int) -> int:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(512)
    found: int = sock.getsockname()[1]
    _listening[found] = sock
    return found


def _serve(order: dict[str, Any]) -> None:
    """In the child: a ledger of its own, opened after the fork."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logs.configure_logging("warning")
    if order["dies"] is not None:
        HighWaterMark.raise_to = _deadly(order["dies"], HighWaterMark.raise_to)  # type: ignore[method-assign, assignment]  # to die
    where = GatewayPaths(order["database"], Path(order["key_file"]), Path(order["mark"]))
    app = create_app(Ledger.open(where), per_s=0.0)
    port = order["port"]
    make_server(app, "127.0.0.1", port).run(sockets=[_listening[port]])


def _deadly(
    when: str, reach: Callable[[HighWaterMark, int], None]
) -> Callable[[HighWaterMark, int], None]:
    """Dies once, between a commit and its answer: before the mark was raised, or after it."""

    def reached(mark: HighWaterMark, number: int) -> None:
        if number <= mark.value():
            return  # nothing new was written down
        if when == "after the mark":
            reach(mark, number)
        os.kill(os.getpid(), signal.SIGKILL)

    return reached


def _fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _serve(order)
            code = 0
        except SystemExit as told:
            code = int(told.code or 0)
        except BaseException:  # noqa: BLE001  # a child must never come back from here
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)
    return pid


def _warm_up() -> None:
    """What a first report imports and builds, once for all children."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.open(paths_in(Path(folder)))
        token = shown(member(ledger, window="60"))
        ledger.report(token, [Fix(*HELSINKI, at_s=float(at_s)) for at_s in range(3)])
        uvicorn.Config(create_app(ledger)).load()
        ledger.close()


def main() -> None:
    _warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "listen":
            told = _listen(order["port"])
        elif order["do"] == "serve":
            told = _fork(order)
        else:  # wait
            told = os.waitstatus_to_exitcode(os.waitpid(order["pid"], 0)[1])
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
