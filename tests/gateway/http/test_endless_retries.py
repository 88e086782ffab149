"""Apps that send the same thing until it is taken: what can never be taken is answered with 200."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from hereish.gateway.ledger import tokens
from tests.support.client_payloads import (
    iso,
    osmand_query,
    overland,
    overland_feature,
    owntracks_android,
    owntracks_encrypted,
    sent,
    traccar_client_json,
)
from tests.support.hostile_stage import MINUTES, Hostile, body_of, hostile, more_tokens
from tests.support.leaks import TRUE

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    with hostile(tmp_path_factory.mktemp("endless"), "alice", "carol", window=MINUTES) as stage:
        more_tokens(stage, "alice", "sealed", passphrase="fünf")  # noqa: S106  # of nobody
        yield stage
        stage.check_silent()


def counted(stage: Hostile) -> dict[tuple[str, str], int]:
    found = re.findall(
        r'^hereish_points_unusable_total{protocol="(\w+)",reason="(\w+)"} ([\d.]+)$',
        stage.ask("GET", "/metrics", None).text,
        re.M,
    )
    return {(protocol, reason): int(float(number)) for protocol, reason, number in found}


def more(before: dict[tuple[str, str], int], after: dict[tuple[str, str], int]) -> dict[Any, int]:
    return {key: n - before.get(key, 0) for key, n in after.items() if n != before.get(key, 0)}


def nonsense(at_s: int) -> dict[str, tuple[str, str, dict[str, Any], bytes, str]]:
    """Protocol, method, how it is sent, what is answered, and why it cannot be taken."""
    location = owntracks_android(*TRUE, at_s)
    traccar = traccar_client_json(*TRUE, at_s)
    bad_time = json.loads(json.dumps(traccar))
    bad_time["location"]["timestamp"] = "yesterday"
    query = dict(osmand_query(*TRUE, at_s))
    return {
        "OwnTracks, tst 0": ("owntracks", "POST", {"json": location | {"tst": 0}}, b"[]", "time"),
        "OwnTracks, no lat": (
            "owntracks",
            "POST",
            {"json": location | {"lat": 0.1e3}},
            b"[]",
            "place",
        ),
        "OwnTracks, cut": ("owntracks", "POST", {"content": sent(location)[:-9]}, b"[]", "body"),
        "OwnTracks, array": ("owntracks", "POST", {"json": [location]}, b"[]", "body"),
        "Traccar, time": ("osmand", "POST", {"json": bad_time}, b"", "time"),
        "Traccar, cut": (
            "osmand",
            "POST",
            {"content": sent(traccar)[:-9], "headers": JSON},
            b"",
            "body",
        ),
        "OsmAnd, time": ("osmand", "GET", {"params": query | {"timestamp": "0"}}, b"", "time"),
        "OsmAnd, place": ("osmand", "GET", {"params": query | {"lat": "{0}"}}, b"", "place"),
        "OsmAnd, twice": (
            *("osmand", "GET", {"params": [*query.items(), ("lat", "1")]}, b"", "ambiguous"),
        ),
        "Overland, cut": ("overland", "POST", {"content": sent(overland())[:-9]}, OK, "body"),
        "Overland, time": (
            "overland",
            "POST",
            {"json": overland(overland_feature(*TRUE, 0))},
            OK,
            "time",
        ),
    }


OK = b'{"result":"ok"}'


def address(stage: Hostile, protocol: str, user: str = "alice") -> str:
    return f"/osmand/{stage.tokens[user]}" if protocol == "osmand" else f"/{protocol}"


@pytest.mark.parametrize("what", nonsense(0))
def test_what_can_never_be_taken_gets_200_and_is_counted_by_why(what: str, stage: Hostile) -> None:
    protocol, method, how, empty, reason = nonsense(stage.tick())[what]
    before, released = counted(stage), stage.released()
    answer = stage.ask(method, address(stage, protocol), **how)
    assert (answer.status_code, answer.content) == (200, empty)
    assert more(before, counted(stage)) == {(protocol, reason): 1}
    assert stage.released() == released


@pytest.mark.parametrize("what", nonsense(0))
def test_without_a_true_token_it_is_401_and_not_counted(what: str, stage: Hostile) -> None:
    protocol, method, how, _, _ = nonsense(stage.tick())[what]
    before = counted(stage)
    stranger = tokens.generate_token()
    path = f"/osmand/{stranger}" if protocol == "osmand" else f"/{protocol}"
    how = {**how, "headers": {**how.get("headers", {}), "Authorization": f"Bearer {stranger}"}}
    assert stage.ask(method, path, None, **how).status_code == 401
    assert counted(stage) == before


def test_a_bad_point_of_a_batch_takes_no_good_one_with_it(stage: Hostile) -> None:
    before, released = counted(stage), stage.released()
    times = [stage.tick() for _ in range(4)]
    bad = [overland_feature(*TRUE, 0), overland_feature(95.0, 0.0, iso(times[0])), None]
    good = [overland_feature(*TRUE, iso(at_s)) for at_s in times[:2]]
    assert (
        stage.ask("POST", "/overland", json=overland(bad[0], good[0], *bad[1:], good[1])).content
        == OK
    )
    messages = [traccar_client_json(*TRUE, at_s) for at_s in times[2:]]
    path = address(stage, "osmand")
    array = [{"location": {"coords": {"latitude": 1}}}, *messages]
    assert stage.ask("POST", path, json=array).status_code == 200
    assert stage.released() == released + 4
    assert more(before, counted(stage)) == {
        ("overland", "time"): 1,
        ("overland", "place"): 1,
        ("overland", "body"): 1,
        ("osmand", "place"): 1,
    }


def test_what_may_be_taken_later_is_not_lost(stage: Hostile) -> None:
    """With the right key, or in smaller batches. It is not counted as lost either."""
    before = counted(stage)
    sealed = owntracks_encrypted(owntracks_android(*TRUE, stage.tick()), "sechs")
    for user in ("alice", "alice sealed"):
        assert stage.ask("POST", "/owntracks", user, json=sealed).status_code == 400
    many = [overland_feature(*TRUE, iso(stage.tick()))] * 1001
    assert stage.ask("POST", "/overland", json=overland(*many)).status_code == 413
    array = [traccar_client_json(*TRUE, stage.tick())] * 1001
    assert stage.ask("POST", address(stage, "osmand"), json=array).status_code == 413
    assert counted(stage) == before


def test_gpslogger_may_put_and_only_there(stage: Hostile) -> None:
    released = stage.released()
    path = address(stage, "osmand")
    query = dict(osmand_query(*TRUE, stage.tick()))
    form = dict(osmand_query(*TRUE, stage.tick()))
    typed = f"lat={TRUE.lat}&lon={TRUE.lon}&timestamp={stage.tick()}".encode()
    for how in ({"params": query}, {"data": form}, {"content": typed}):
        for slash in ("", "/"):  # the second one is the same report again
            answer = stage.ask("PUT", path + slash, **how)
            assert (answer.status_code, answer.content) == (200, b"")
    assert stage.released() == released + 3
    assert (
        stage.ask("PUT", f"/osmand/{tokens.generate_token()}", None, params=query).status_code
        == 401
    )
    for other in ("/owntracks", "/overland", "/v1/report"):
        assert stage.ask("PUT", other, content=b"{}").status_code == 405


def test_a_report_without_a_time_is_of_now_and_says_so(stage: Hostile) -> None:
    place = {"lat": TRUE.lat, "lon": TRUE.lon}
    for body in (place, {**place, "at": None}):
        began_s = time.time()
        told = body_of(stage.ask("POST", "/v1/report", "carol", json=body))
        at_s = datetime.fromisoformat(told["at"]).timestamp()
        assert began_s - 1e-3 <= at_s <= time.time() + 1e-3
        assert told["kind"] in ("hard", "easy", "untested")
    first = body_of(stage.ask("POST", "/v1/report", "carol", json={**place, "id": "r1"}))
    again = body_of(stage.ask("POST", "/v1/report", "carol", json={**place, "id": "r1"}))
    assert {**again, "remaining": 0, "spent": 0} == {**first, "remaining": 0, "spent": 0}
    wrong: list[object] = ["", "now", [], {}, True]
    for at in wrong:
        told = stage.ask("POST", "/v1/report", "carol", json={**place, "at": at})
        assert told.status_code == 422


def test_our_own_clients_still_hear_what_is_wrong(stage: Hostile) -> None:
    for body in (b"", b"{", b"[]", b'{"lat": 1}', b'{"lat": 95, "lon": 1}'):
        answer: httpx.Response = stage.ask("POST", "/v1/report", content=body)
        assert answer.status_code == 422
