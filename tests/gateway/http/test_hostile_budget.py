"""A budget that has ended is no error: each client hears what lets it go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.client_payloads import owntracks_ios
from tests.support.hostile_stage import Hostile, body_of, hostile, more_tokens, payloads
from tests.support.leaks import TRUE

HEARD = {
    "OwnTracks": (b"[]", "application/json"),
    "Overland": (b'{"result":"ok"}', "application/json"),
    "OsmAnd": (b"", None),
    "Traccar form": (b"", None),
    "Traccar JSON": (b"", None),
}


@contextmanager
def spent(folder: Path, **settings: Any) -> Iterator[tuple[Hostile, dict[str, Any]]]:
    """A server with a user whose budget has ended, and the last that was released."""
    # One budget for ever: an hour ago may have been yesterday.
    policy = {"reports": 2, "mechanism": "independent", "window": "none", **settings}
    with hostile(folder, "alice", "bob", **policy) as stage:
        more_tokens(stage, "alice", "friend", show_release=True)
        began_s = time.time() - 3600
        told = [body_of(stage.report(at=began_s + step)) for step in range(3)]
        assert [one["kind"] for one in told[:2]] == ["hard", "hard"]
        assert body_of(stage.ask("GET", "/v1/budget"))["exhausted"] is True
        yield stage, told[1]
        assert body_of(stage.ask("GET", "/v1/budget"))["spent"] == told[1]["spent"]
        assert body_of(stage.report("bob"))["kind"] == "hard"  # a budget of his own


def send(stage: Hostile, client: str, user: str = "alice") -> httpx.Response:
    method, path, kind, body = payloads(stage.tokens[user], time.time())[client]
    return stage.ask(method, path, user, headers={"Content-Type": kind}, content=body)


def test_after_the_budget_each_client_hears_what_it_needs(tmp_path: Path) -> None:
    with spent(tmp_path, on_exhausted="stop") as (stage, last):
        for client, (heard, kind) in HEARD.items():
            answer = send(stage, client)
            assert (answer.status_code, answer.content) == (200, heard), client
            assert answer.headers.get("content-type") == kind
        assert send(stage, "OwnTracks", "alice friend").content == b"[]"
        told = body_of(send(stage, "v1"))
        assert (told["kind"], told["lat"], told["lon"], told["cost"]) == ("none", None, None, 0.0)
        assert told["accuracy_m"] is None
        assert told["spent"] == last["spent"]
        releases = body_of(stage.ask("GET", "/v1/history"))["releases"]
        assert len(releases) == 2


def test_with_prediction_each_client_hears_the_last_release_again(tmp_path: Path) -> None:
    with spent(tmp_path, on_exhausted="predict") as (stage, last):
        for client, (heard, kind) in HEARD.items():  # those who hear nothing still hear nothing
            answer = send(stage, client)
            assert (answer.status_code, answer.content) == (200, heard), client
            assert answer.headers.get("content-type") == kind
        told = body_of(send(stage, "v1"))
        assert (told["lat"], told["lon"]) == (last["lat"], last["lon"])
        assert (told["kind"], told["cost"]) == ("untested", 0.0)
        assert told["spent"] == last["spent"]
        message = owntracks_ios(*TRUE, int(time.time()) + 1)
        friend, *_ = body_of(stage.ask("POST", "/owntracks", "alice friend", json=message))
        assert (friend["lat"], friend["lon"]) == (last["lat"], last["lon"])
        places = {
            (one["lat"], one["lon"])
            for one in body_of(stage.ask("GET", "/v1/history"))["releases"]
            if one["kind"] == "untested"
        }
        assert places == {(last["lat"], last["lon"])}


def test_nonsense_stays_nonsense_after_the_budget(tmp_path: Path) -> None:
    with spent(tmp_path) as (stage, _):
        for nonsense in (b"", b"{", b"[]", b'{"lat":1}'):
            assert stage.ask("POST", "/v1/report", content=nonsense).status_code == 422
            assert stage.ask("POST", "/overland", content=nonsense).status_code == 200
            assert stage.ask("POST", "/v1/report", None, content=nonsense).status_code == 401
