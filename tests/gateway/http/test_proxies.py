"""The proxies in front, set up as docs/gateway.md says: real Caddy, real nginx, if installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hereish.gateway.ledger.ledger import Ledger
from tests.support import client_payloads as payloads
from tests.support.paths import ROOT
from tests.support.stage import HELSINKI, Running, free_port, member, paths_in, serving

PAGE = ROOT / "docs" / "gateway.md"
GATEWAY = "127.0.0.1:8035"
QUIET = {
    "caddyfile": re.compile(r"log \{.*?\}\n", re.DOTALL),
    "nginx": re.compile(r"(access_log|error_log|client_body_buffer_size) .*\n"),
}


def on_the_page(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.M)
    assert len(found) == 1
    assert GATEWAY in found[0]
    return str(found[0])


def _caddy(folder: Path, settings: str, port: int) -> tuple[list[str], str]:
    settings = settings.replace("where.example.org", f"http://127.0.0.1:{port}")
    settings = settings.replace("\n{\n", "\n{\n    admin off\n", 1)
    (folder / "Caddyfile").write_text(settings, "utf-8")
    return ["caddy", "run", "--config", str(folder / "Caddyfile")], ""


def _nginx(folder: Path, settings: str, port: int) -> tuple[list[str], str]:
    (folder / "client_body").mkdir(0o500)  # no body can be written to a file: that would be a 500
    own = "".join(
        f"{kind}_temp_path {folder / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"pid {folder / 'pid'};\nevents {{}}\nhttp {{\naccess_log {folder / 'access'};\n{own}"
        f"server {{\nlisten 127.0.0.1:{port};\n{settings}}}\n}}\n",
        "utf-8",
    )
    words = ["-c", str(folder / "nginx.conf"), "-e", str(folder / "errors"), "-g", "daemon off;"]
    return ["nginx", *words], "/hereish"


@contextmanager
def proxy(language: str, folder: Path, settings: str) -> Iterator[str]:
    """The proxy with these settings; its address. What it says goes into the folder."""
    port = free_port()
    words, prefix = {"caddyfile": _caddy, "nginx": _nginx}[language](folder, settings, port)
    program = shutil.which(words[0], path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip(f"{words[0]} is not installed")
    with (folder / "said").open("wb") as said:
        running = subprocess.Popen(  # noqa: S603  # a program of the system, as the page says
            [program, *words[1:]],
            stdout=said,
            stderr=said,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        )
    try:
        for _ in range(400):
            assert running.poll() is None, (folder / "said").read_text("utf-8")
            try:
                httpx.get(f"http://127.0.0.1:{port}/")
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}{prefix}"
    finally:
        running.terminate()
        running.wait(30)


def written(folder: Path) -> str:
    """All that the proxy has written."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "".join(path.read_text("utf-8", "replace") for path in files)


def reported_while_it_is_down(running: Running, address: str, token: str) -> None:
    """The moment at which proxies log addresses."""
    running.kill()
    query = dict(payloads.osmand_query(*HELSINKI, time.time()))
    assert httpx.get(f"{address}/osmand/{token}", params=query).status_code == 502


def large_batch(address: str, token: str) -> httpx.Response:
    sent = payloads.sent(payloads.overland(*[payloads.overland_feature()] * 1000))
    bearer = {"Authorization": f"Bearer {token}"}
    return httpx.post(f"{address}/overland", content=sent, headers=bearer)


@pytest.mark.parametrize("language", ["caddyfile", "nginx"])
def test_a_proxy_as_the_page_sets_it_up(tmp_path: Path, language: str) -> None:
    front = tmp_path / "front"
    front.mkdir()
    where = paths_in(tmp_path)
    ledger = Ledger.open(where)
    token = member(ledger)
    ledger.close()
    with serving(where) as running:
        settings = on_the_page(language).replace(GATEWAY, f"127.0.0.1:{running.port}")
        with proxy(language, front, settings) as address:
            assert httpx.get(f"{address}/").text.startswith("<!doctype html>")
            assert httpx.get(f"{address}/readyz").json() == {"status": "ok"}
            assert httpx.get(f"{running.url}/metrics").status_code == 200
            assert httpx.get(f"{address}/metrics").status_code == 404
            answer = large_batch(address, token)
            assert (answer.status_code, answer.content) == (200, b'{"result":"ok"}')
            reported_while_it_is_down(running, address, token)
    assert token not in written(front)
    assert str(HELSINKI[0]) not in written(front)


@pytest.mark.parametrize("language", ["caddyfile", "nginx"])
def test_without_those_lines_it_would_tell(tmp_path: Path, language: str) -> None:
    front = tmp_path / "front"
    front.mkdir()
    where = paths_in(tmp_path)
    Ledger.open(where).close()
    token = "hereish_" + "0" * 16
    talkative, lines = QUIET[language].subn("", on_the_page(language))
    assert lines == {"caddyfile": 1, "nginx": 3}[language]
    with serving(where) as running:
        settings = talkative.replace(GATEWAY, f"127.0.0.1:{running.port}")
        with proxy(language, front, settings) as address:
            if language == "nginx":
                assert large_batch(address, token).status_code == 500  # it tried to write a file
            reported_while_it_is_down(running, address, token)
    assert token in written(front)
    assert str(HELSINKI[0]) in written(front)
