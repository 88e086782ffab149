"""The client keeps how far the gateway's ledger had come, and shows it again."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

import hereish
from hereish import client
from tests.support.client_driver import BUDGET, HERE, NOON, RELEASE, TOKEN, Driver
from tests.support.scripted_gateway import Act, Script, answer, drop, serving

SEALED = "x" * 99


def at(position: str, body: dict[str, Any] = RELEASE) -> Act:
    return answer(200, body, Hereish_Ledger_Position=position)


def reported(gateway: client.Client, times: int) -> None:
    for _ in range(times):
        gateway.report(HERE, at=NOON)


def test_the_highest_is_shown_with_each_request_and_each_try() -> None:
    script = Script(
        at(f"17.9.{SEALED}"),
        at(f"17.10.{SEALED}"),
        drop,
        at(f"17.9.{SEALED}"),
        at(f"16.99.{SEALED}", BUDGET),
        at(f"18.1.{SEALED}"),
        answer(503, {"error": "no"}),
        at(f"18.1.y{SEALED}"),
        at(f"18.1.{SEALED}"),
    )
    with serving(script) as url, client.Client(url, TOKEN) as gateway:
        reported(gateway, 3)
        gateway.budget()
        reported(gateway, 4)
    assert (
        [request.position for request in script.seen]
        == [
            None,
            f"17.9.{SEALED}",
            *[f"17.10.{SEALED}"] * 4,
            *[f"18.1.{SEALED}"] * 2,
            f"18.1.y{SEALED}",  # as high, and later
            f"18.1.{SEALED}",
        ][: len(script.seen)]
    )


@pytest.mark.parametrize(
    "position",
    ["", "17.9", "17.9.", "a.b.c", f"-1.9.{SEALED}", f"1.9.{SEALED} x", f"1.9.{'x' * 999}"],
)
def test_what_is_no_position_is_not_kept_and_hurts_nobody(call: Driver, position: str) -> None:
    with serving(script := Script(at(position))) as url:
        assert call(url, "report", HERE, at=NOON).released
    with serving(script) as url, client.Client(url, TOKEN) as gateway:
        reported(gateway, 2)
    assert {request.position for request in script.seen} == {None}


def test_a_file_keeps_it_for_the_next_client_of_the_same_gateway_and_token(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "positions"
    script = Script(at(f"17.9.{SEALED}"), at(f"17.3.{SEALED}"))
    with serving(script) as url:
        for token in (TOKEN, TOKEN, "another", "another"):
            with client.Client(url, token, position_file=kept) as gateway:
                gateway.report(HERE, at=NOON)
        other = url.replace("127.0.0.1", "localhost")
        with client.Client(other, TOKEN, position_file=str(kept)) as gateway:
            gateway.report(HERE, at=NOON)
    first, third = f"17.9.{SEALED}", f"17.3.{SEALED}"
    assert [r.position for r in script.seen] == [None, first, None, third, None]
    content = kept.read_text("utf-8")
    assert sorted(json.loads(content).values()) == [third, third, first]
    assert not any(secret in content for secret in (TOKEN, "127.0.0.1", "60.16", "24.93"))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["positions"]


@pytest.mark.parametrize("content", [b"-----BEGIN KEY-----", b"[]", b'{"a": 1}', b'{"a": "b"}'])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(content)
    with pytest.raises(hereish.ParameterError, match="left as it is"):
        client.Client("https://gateway.example", TOKEN, position_file=mine)
    assert mine.read_bytes() == content
    with pytest.raises(hereish.ParameterError, match="folder"):
        client.AsyncClient("https://g.example", TOKEN, position_file=tmp_path / "no" / "file")


def test_a_file_that_cannot_be_written_loses_no_report(tmp_path: Path) -> None:
    kept = tmp_path / "positions"
    script = Script(at(f"17.9.{SEALED}"))
    with serving(script) as url, client.Client(url, TOKEN, position_file=kept) as gateway:
        kept.mkdir()  # in the way of the file
        reported(gateway, 2)
    assert [request.position for request in script.seen] == [None, f"17.9.{SEALED}"]
