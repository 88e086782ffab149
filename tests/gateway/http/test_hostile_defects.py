"""A defect in the gateway itself, whose words have the place in them: they stay inside.

The one test module that breaks something on purpose, so its server runs in a thread.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from hereish.errors import HereishError, ParameterError
from hereish.gateway.http.app import create_app
from hereish.gateway.http.server import make_server
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.user_state import UserState
from hereish.gateway.observability import logs
from tests.support.hostile_stage import PATIENCE_S, WORDS_OF_PYTHON, payloads
from tests.support.leaks import TRUE, leaks, leaks_in_files, released_in
from tests.support.stage import free_port, member, paths_in

HERE = f"cannot use lat={TRUE.lat}, lon={TRUE.lon} ({TRUE.lat.hex()})"


@dataclass
class Threaded:
    """A server of this process, and where it logs to."""

    url: str
    token: str
    log: Path
    folder: Path

    def ask(self, client: str) -> httpx.Response:
        method, path, kind, body = payloads(self.token, time.time())[client]
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        return httpx.request(
            method, self.url + path, headers=headers, content=body, timeout=PATIENCE_S
        )


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Logs as the gateway has them, at the most talkative level, in a file; undone afterwards."""
    log = tmp_path / "log"
    names = ("", "hereish", "uvicorn", "uvicorn.error")
    levels = {name: logging.getLogger(name).level for name in names}
    logging.root.handlers.clear()  # those of pytest, which it brings anew for the test itself
    with log.open("w", encoding="utf-8") as lines, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", lines)
        logs.configure_logging("debug")
        [ours] = logging.root.handlers
        yield log
        logging.root.removeHandler(ours)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@pytest.fixture
def threaded(tmp_path: Path, logged: Path) -> Iterator[Threaded]:
    ledger = Ledger.open(paths_in(tmp_path))
    token = member(ledger)
    port = free_port()
    server = make_server(create_app(ledger), "127.0.0.1", port)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    yield Threaded(f"http://127.0.0.1:{port}", token, logged, tmp_path)
    server.should_exit = True
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def _plain(*_: Any, **__: Any) -> None:
    raise ValueError(HERE)


def _chained(*_: Any, **__: Any) -> None:
    try:
        float(HERE)
    except ValueError as first:
        raise RuntimeError(TRUE) from first


def _grouped(*_: Any, **__: Any) -> None:
    raise ExceptionGroup(HERE, [ValueError(HERE), KeyError(TRUE.lat)])


def _noted(*_: Any, **__: Any) -> None:
    wrong = LookupError(HERE)
    wrong.add_note(HERE)
    raise wrong


def _ours(*_: Any, **__: Any) -> None:
    raise ParameterError(HERE)


def _ours_too(*_: Any, **__: Any) -> None:
    raise HereishError(HERE)


class _Spoken(Exception):  # noqa: N818  # it is raised once
    def __str__(self) -> str:
        raise ValueError(HERE)  # worse than any: it fails when somebody wants its words

    __repr__ = __str__


def _unspeakable(*_: Any, **__: Any) -> None:
    raise _Spoken


def _recursive(*_: Any, **__: Any) -> None:
    _recursive(HERE)


FAILURES = [_plain, _chained, _grouped, _noted, _ours, _ours_too, _unspeakable, _recursive]
PARTS = [(Ledger, "report_all"), (UserState, "add"), (UserState, "to_json"), (Ledger, "_commit")]


def check_silent(threaded: Threaded) -> list[dict[str, Any]]:
    """No place in anything it wrote; its lines."""
    released = released_in(threaded.folder / "ledger.db")
    assert leaks_in_files(threaded.folder, released) == {}
    text = threaded.log.read_text("utf-8")
    assert "Traceback" not in text
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("failing", FAILURES)
def test_a_defect_is_answered_and_logged_without_its_words(
    failing: Callable[..., None], threaded: Threaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part, name in PARTS:
        with monkeypatch.context() as broken:
            broken.setattr(part, name, failing)
            for client in payloads("", 0.0):
                answer = threaded.ask(client)
                assert answer.status_code == 500
                assert answer.json() == {"error": "a defect of the gateway; it may be sent again"}
                said = repr(answer.headers.raw).encode() + answer.content
                assert leaks(said) == []
                assert not any(words in said for words in WORDS_OF_PYTHON)
    defects = [line for line in check_silent(threaded) if "defect" in line]
    assert len(defects) == len(PARTS) * len(payloads("", 0.0))
    for line in defects:  # and yet it can be found
        assert (line["level"], line["status"]) == ("error", 500)
        assert Path(__file__).name in line["where"]
    assert threaded.ask("v1").status_code == 200  # nothing of it stays
    counted = httpx.get(f"{threaded.url}/metrics")
    assert leaks(counted.content) == []
    assert 'status="500"' in counted.text


def test_a_defect_that_is_found_by_chance_is_found_by_the_search(threaded: Threaded) -> None:
    """The control: had the words been logged, `check_silent` would have said so."""
    logging.getLogger("hereish").error("a defect: %s", HERE)
    check_silent(threaded)  # the format alone is written, never its arguments
    logs.log_event("request", words=HERE)
    with pytest.raises(AssertionError):
        check_silent(threaded)


def test_what_libraries_log_has_no_words(threaded: Threaded) -> None:
    for name in ("asyncio", "sqlalchemy.engine", "urllib3", "httpx", "root", "paho"):
        for level in (logging.WARNING, logging.CRITICAL):
            logging.getLogger(name).log(level, "%s", HERE)
        try:
            _chained()
        except RuntimeError:
            logging.getLogger(name).exception(HERE)
            logging.getLogger("uvicorn.error").exception(HERE)
            logging.getLogger("hereish.gateway").exception("it failed")
    lines = check_silent(threaded)
    assert len([line for line in lines if line.get("defect") == "RuntimeError"]) == 18
