"""`hereish serve`: ports, keys, the demo, and what it prints."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from hereish.gateway.ledger.ledger import Ledger
from tests.support.stage import free_port, paths_in, serving
from tests.support.terminal import commands_in, in_a_process


def test_serve_refuses_a_port_that_is_taken_and_a_ledger_without_its_key(tmp_path: Path) -> None:
    where = paths_in(tmp_path)
    Ledger.open(where).close()
    words = ("--database", where.database, "--key-file", where.key_file, "--mark", where.mark_file)
    with serving(where) as running:
        taken = in_a_process("serve", *words, "--port", running.port)
    assert taken.returncode == 1
    assert "choose another --host or --port" in taken.stderr
    where.key_file.write_bytes(base64.b64encode(bytes(32)))
    strange = in_a_process("serve", *words, "--port", free_port())
    assert strange.returncode == 1
    assert "not the key" in strange.stderr


def test_the_demo_prints_a_curl_line_that_works(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed, so the line was not tried")
    port = free_port()
    program = [str(Path(sys.executable).parent / "hereish"), "serve", "--demo", "--port", str(port)]
    with (tmp_path / "out").open("wb") as out:
        demo = subprocess.Popen(program, stdout=out, stderr=subprocess.STDOUT)  # noqa: S603  # ours
    try:
        for _ in range(1200):
            if _is_ready(port):
                break
            time.sleep(0.05)
        said = (tmp_path / "out").read_text("utf-8")
        [line] = re.findall(r"^curl .*$", said, re.M)
        done = subprocess.run(  # noqa: S603  # what it printed is what is tried
            ["bash", "-c", line],  # noqa: S607  # on PATH
            capture_output=True,
            check=True,
        )
        told = json.loads(done.stdout)
        assert told["kind"] == "hard"
        assert told["spent"] > 0
        page = httpx.get(f"http://127.0.0.1:{port}/")
        assert page.status_code == 200
    finally:
        demo.terminate()
        assert demo.wait(30) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/healthz")


def test_serve_says_what_it_made_and_that_others_can_reach_it(tmp_path: Path) -> None:
    where, port = paths_in(tmp_path), free_port()
    words = ("--database", where.database, "--key-file", where.key_file, "--mark", where.mark_file)
    program = [str(Path(sys.executable).parent / "hereish"), "serve", *map(str, words)]
    host = "0.0.0.0"  # noqa: S104  # for a moment; this is what is warned of
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        served = subprocess.Popen(  # noqa: S603  # ours
            [*program, "--host", host, "--port", str(port)], stdout=out, stderr=err
        )
    try:
        for _ in range(1200):
            if _is_ready(port):
                break
            time.sleep(0.05)
    finally:
        served.terminate()
        assert served.wait(30) == 0
    said, logged = ((tmp_path / name).read_text("utf-8") for name in ("out", "err"))
    assert "made a new ledger" in said
    assert str(where.key_file) in said
    [first] = [words for words in commands_in(said) if words[1:3] == ["user", "add"]]
    assert first[-6:-4] == ["--database", where.database], "the hint is for this ledger"
    warning, *lines = logged.splitlines()
    assert warning.startswith("hereish: warning: other machines can reach 0.0.0.0")
    assert all(json.loads(line) for line in lines), "the rest is the log"


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
    except httpx.TransportError:
        return False
