"""What may be said to a client before it says anything: addresses, tokens, settings."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import hereish
from hereish import client

TOKEN = "a-token-that-nobody-may-see"  # noqa: S105  # of no gateway
BOTH = pytest.mark.parametrize("kind", [client.Client, client.AsyncClient])


@BOTH
@pytest.mark.parametrize(
    "url",
    [
        *("http://gateway.example", "http://192.168.1.5:8000", "http://127.0.0.1.example"),
        *("ftp://localhost", "gateway.example", "", "https://", "https://a:b@gateway.example"),
        *("https://gateway.example?x=1", "http://localhost.example", "https://a:port", None),
    ],
)
def test_addresses_that_would_not_keep_a_secret_are_refused(kind: type, url: str) -> None:
    with pytest.raises(hereish.ParameterError) as refused:
        kind(url, TOKEN)
    assert TOKEN not in str(refused.value)
    assert "a:b" not in str(refused.value)


@BOTH
@pytest.mark.parametrize(
    "url",
    [
        "https://gateway.example/prefix",
        "http://localhost:8000",
        "http://127.0.0.1",
        "http://[::1]:1",
    ],
)
def test_addresses_that_keep_it_are_taken(kind: type, url: str) -> None:
    shown = repr(kind(url, TOKEN))
    assert shown.startswith(f"{kind.__name__}('{url[:16]}")
    assert TOKEN not in shown


@BOTH
def test_who_insists_may_speak_in_the_clear(kind: type) -> None:
    assert "192.168.1.5" in repr(kind("http://192.168.1.5", TOKEN, insecure=True))


@BOTH
@pytest.mark.parametrize(
    "wrong",
    [
        *({"token": token} for token in ("", "two words", "line\n", None)),
        *({"retries": -1}, {"retries": 1.5}, {"timeout_s": 0.0}),
    ],
)
def test_bad_settings_are_refused(kind: type, wrong: dict[str, Any]) -> None:
    with pytest.raises(hereish.ParameterError) as refused:
        kind(**{"url": "https://gateway.example", "token": TOKEN, **wrong})
    assert "two words" not in str(refused.value)


def test_without_httpx_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['httpx'] = None; import hereish.lbs; import hereish.client"
    done = subprocess.run(  # noqa: S603  # our own interpreter and our own words
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "pip install 'hereish[client]'" in done.stderr.splitlines()[-1]
