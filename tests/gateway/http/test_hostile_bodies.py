"""Bodies that no client sends: noise, damaged messages, other formats. Each gets an answer.

Ours is told what is wrong. Phones' apps are told that all is well, or they would send the same body
for ever; it is counted, and nothing comes of it.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.client_payloads import ANY_JSON, owntracks_encrypted, owntracks_ios
from tests.support.hostile_stage import (
    MINUTES,
    START_S,
    Hostile,
    body_of,
    hostile,
    more_tokens,
    payloads,
)
from tests.support.leaks import TRUE

POSTS = ("v1", "OwnTracks", "Overland", "Traccar form", "Traccar JSON")
EMPTY = {"OwnTracks": b"[]", "Overland": b'{"result":"ok"}'} | dict.fromkeys(POSTS[3:], b"")
AS_JSON, AS_FORM = "application/json", "application/x-www-form-urlencoded"
KINDS = (AS_JSON, AS_FORM, "text/plain", "multipart/form-data; boundary=x", "image/png", "", "a\tb")
PASSPHRASE = "fünf Füchse"  # noqa: S105  # of nobody
FUZZ = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    # The server outlives the examples, which is the point.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    # A user for each client: what one sends without a time, or with a damaged one, may be newer
    # than all that the others send, and would be in their way.
    with hostile(
        tmp_path_factory.mktemp("bodies"), "alice", "bob", *POSTS, window=MINUTES
    ) as stage:
        more_tokens(stage, "bob", "sealed", passphrase=PASSPHRASE, show_release=True)
        yield stage
        assert stage.lives()


def post(stage: Hostile, client: str, body: bytes, kind: str | None = None, **more: Any) -> int:
    """The status for a body that is sent as this client would; its error is in words of ours."""
    method, path, usual, _ = payloads(stage.tokens[client], stage.tick())[client]
    headers = {"Content-Type": usual if kind is None else kind, **more}
    answer = stage.ask(method, path, client, headers=headers, content=body)
    if client != "v1":
        assert (answer.status_code, answer.content) == (200, EMPTY[client])
    elif answer.status_code != 200:
        assert answer.status_code == 422
        told = body_of(answer)
        assert list(told) == ["error"]
        assert told["error"].isascii()
    return answer.status_code


def unusable(stage: Hostile) -> int:
    """How many points could not be taken, as the metrics have it: by protocol and by why."""
    counted = re.findall(
        r'^hereish_points_unusable_total{protocol="(\w+)",reason="(\w+)"} ([\d.]+)$',
        stage.ask("GET", "/metrics", None).text,
        re.M,
    )
    assert {protocol for protocol, _, _ in counted} <= {"owntracks", "overland", "osmand"}
    assert {reason for _, reason, _ in counted} <= {"body", "place", "time", "ambiguous"}
    return int(sum(float(number) for _, _, number in counted))


def good(stage: Hostile, client: str) -> bytes:
    return payloads(stage.tokens[client], stage.tick())[client][3]


@pytest.mark.parametrize("client", POSTS)
def test_what_the_client_really_sends_is_taken(client: str, stage: Hostile) -> None:
    before = stage.released()
    for _ in range(20):
        assert post(stage, client, good(stage, client)) == 200
    assert stage.released() == before + 20


@pytest.mark.parametrize("client", POSTS)
def test_random_bytes_are_answered(client: str, stage: Hostile) -> None:
    dice = random.Random(f"bytes {client}")  # noqa: S311  # repeatable, not secret
    before, released = unusable(stage), stage.released()
    seen = Counter(post(stage, client, dice.randbytes(dice.randrange(300))) for _ in range(100))
    if client == "v1":
        assert seen == {422: 100}
    elif client != "Traccar form":  # any text is a form, only one without a position
        assert unusable(stage) > before + 90
    assert stage.released() == released


@pytest.mark.parametrize("client", POSTS)
def test_a_message_that_was_cut_off_is_answered(client: str, stage: Hostile) -> None:
    whole = good(stage, client)
    cuts = {len(whole) * part // 40 for part in range(40)}
    before = unusable(stage)
    seen = Counter(post(stage, client, whole[:cut]) for cut in sorted(cuts))
    assert seen[422] + unusable(stage) - before > 0


def mutated(dice: random.Random, body: bytes) -> bytes:
    """A few bytes changed, lost, doubled or moved. True digits stay true digits, or get lost."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(body) or 1)
        to = min(len(body), at + dice.randint(1, 8))
        piece = body[at:to]
        body = dice.choice(
            [
                body[:at] + dice.randbytes(len(piece)) + body[to:],
                body[:at] + body[to:],
                body[:to] + piece + body[to:],
                body[:at]
                + dice.choice([b'"', b"{", b"}", b"[", b"\\", b"\x00", b"e9"])
                + body[at:],
                body[:at] + dice.choice([b"null", b"-", b"1e999", b"NaN", b"true"]) + body[to:],
            ]
        )
    return body


@pytest.mark.parametrize("client", POSTS)
def test_a_message_that_was_damaged_is_answered(client: str, stage: Hostile) -> None:
    dice = random.Random(f"mutated {client}")  # noqa: S311  # repeatable, not secret
    before, released = unusable(stage), stage.released()
    seen = Counter(post(stage, client, mutated(dice, good(stage, client))) for _ in range(150))
    assert seen[422] + unusable(stage) - before > 0  # some were still good, some were not
    assert stage.released() > released


def _with(at_s: float = START_S, **fields: str) -> bytes:
    """A report for /v1 and OwnTracks at once, with fields in raw JSON."""
    told = {"_type": '"location"', "lat": str(TRUE.lat), "lon": str(TRUE.lon)}
    told |= {"tst": str(at_s), "at": str(at_s), **fields}
    return ("{" + ",".join(f'"{name}":{value}' for name, value in told.items()) + "}").encode()


BROKEN: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "spaces": lambda: b" \r\n\t ",
    "a bracket": lambda: b"{",
    "another type": lambda: b"[]",
    "null": lambda: b"null",
    "two objects": lambda: _with() + _with(),
    "a comment": lambda: _with() + b"// here",
    "single quotes": lambda: _with().replace(b'"', b"'"),
    "a trailing comma": lambda: _with()[:-1] + b",}",
    "a byte order mark": lambda: b"\xef\xbb\xbf" + _with(),
    "UTF-16": lambda: _with().decode().encode("utf-16"),
    "UTF-32": lambda: _with().decode().encode("utf-32"),
    "no UTF-8": lambda: _with(tid='"\xff"').decode().encode("latin-1"),
    "overlong UTF-8": lambda: _with().replace(b"location", b"\xc0\xaflocation"),
    "a NUL": lambda: _with(tid='"\x00"'),
    "deep arrays": lambda: b"[" * 200_000,
    "deep objects": lambda: b'{"a":' * 200_000,
    "deep and closed": lambda: _with(extra="[" * 5000 + "]" * 5000),
    "deep and wrong": lambda: _with(lat="[" * 5000 + "]" * 5000),
    "NaN": lambda: _with(lat="NaN"),
    "Infinity": lambda: _with(lat="Infinity"),
    "minus Infinity": lambda: _with(lon="-Infinity"),
    "a huge exponent": lambda: _with(lat="1e999"),
    "a huge integer": lambda: _with(lat="9" * 400),
    "an integer beyond conversion": lambda: _with(lat="9" * 10_000),
    "a time beyond all": lambda: _with(tst="1e300", at="1e300"),
    "a time before all": lambda: _with(tst="-1e300", at="-1e300"),
    "a time that is not finite": lambda: _with(tst="1e999", at="1e999"),
    "a true latitude": lambda: _with(lat="true"),
    "a latitude in text": lambda: _with(lat=f'"{TRUE.lat}"'),
    "a latitude in an array": lambda: _with(lat=f"[{TRUE.lat}]"),
    "a latitude in an object": lambda: _with(lat=f'{{"degrees":{TRUE.lat}}}'),
    "beyond the pole": lambda: _with(lat="90.0000001"),
    "beyond the meridian": lambda: _with(lon="-180.0000001"),
    "swapped": lambda: _with(lat=str(TRUE.lon), lon=str(TRUE.lat)),
    "a leading zero": lambda: _with(lat=f"0{TRUE.lat}"),
    "hexadecimal": lambda: _with(lat="0x43"),
    "no latitude": lambda: _with(lat="null"),
}
# To OwnTracks: an empty body is a ping, what is not looked at may be deep, and GPSLogger quotes.
NO_TROUBLE = dict.fromkeys(
    ["nothing", "spaces", "deep and closed", "a latitude in text"], "OwnTracks"
)


@pytest.mark.parametrize("what", BROKEN)
def test_broken_json_is_refused_in_words_of_ours_or_counted(what: str, stage: Hostile) -> None:
    body = BROKEN[what]()
    for client in ("v1", "OwnTracks", "Overland", "Traccar JSON"):
        before, released = unusable(stage), stage.released()
        status = post(stage, client, body)
        if client == "v1":
            assert status == 422, what
        elif client == "Overland" or (client == "OwnTracks" and NO_TROUBLE.get(what) != client):
            assert unusable(stage) == before + 1, (what, client)  # none of them is a batch
        if client in ("v1", "Overland"):
            assert stage.released() == released


@pytest.mark.parametrize("client", ["OwnTracks", "Overland", "Traccar JSON"])
def test_a_key_that_comes_twice_is_not_taken(client: str, stage: Hostile) -> None:
    """Which of two places was meant is not for us to say."""
    whole = good(stage, client)
    for name in (b'"lat"', b'"locations"', b'"coords"'):
        whole = whole.replace(name, name + b":1," + name, 1)
    before, released = unusable(stage), stage.released()
    assert post(stage, client, whole) == 200
    assert (unusable(stage), stage.released()) == (before + 1, released)


@pytest.mark.parametrize("at", ["0", "1577836800", "1577836800.5", "1577836800000", "2020-01-01"])
def test_a_text_that_is_no_date_and_time_is_no_time(at: str, stage: Hostile) -> None:
    """Seconds are a number. A guess between seconds and milliseconds is a guess between days."""
    assert post(stage, "v1", _with(at=json.dumps(at))) == 422
    assert stage.ask("GET", "/v1/history", params={"before": at}).status_code == 422


def test_extremes_that_are_places_are_taken(stage: Hostile) -> None:
    for lat in ("90", "-90", "-0.0", "5e-324", "1E1", f"{TRUE.lat}" + "0" * 3000):
        for lon in ("180", "-180", "1e-400"):
            for client in ("v1", "OwnTracks"):
                body = _with(stage.tick(), lat=lat, lon=lon)
                assert post(stage, client, body) == 200, (client, lat, lon)


@pytest.mark.parametrize("kind", KINDS)
def test_another_content_type_changes_little(kind: str, stage: Hostile) -> None:
    """Apps are careless with it, and what looks like JSON is JSON."""
    for client in POSTS:
        before = unusable(stage)
        assert post(stage, client, good(stage, client), kind) == 200
        taken = client != "Traccar form" or kind in (AS_FORM, "text/plain", "")
        assert unusable(stage) == before + (not taken), client


@pytest.mark.parametrize("client", POSTS)
def test_a_compressed_body_is_not_unpacked(client: str, stage: Hostile) -> None:
    """So that a few bytes cannot become many."""
    body = good(stage, client)
    for name, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
        before = unusable(stage)
        status = post(stage, client, packed, **{"Content-Encoding": name})
        assert status == 422 or unusable(stage) > before or client == "Traccar form"
    bomb = gzip.compress(bytes(50_000_000), 9)
    post(stage, client, bomb, **{"Content-Encoding": "gzip"})


@pytest.mark.parametrize("client", POSTS)
def test_a_body_in_chunks_is_as_good_as_a_whole_one(client: str, stage: Hostile) -> None:
    method, path, kind, body = payloads(stage.tokens[client], stage.tick())[client]
    pieces = (body[at : at + 7] for at in range(0, len(body), 7))
    answer = stage.ask(method, path, client, headers={"Content-Type": kind}, content=pieces)
    assert answer.status_code == 200
    assert answer.request.headers["transfer-encoding"] == "chunked"


@FUZZ
@given(message=ANY_JSON, known=st.sampled_from(["lat", "lon", "tst", "at", "id", "tid", "_type"]))
def test_any_json_in_any_field_is_answered(message: Any, known: str, stage: Hostile) -> None:
    told = json.loads(_with(stage.tick()))
    body = json.dumps({**told, known: message}).encode()
    for client in ("v1", "OwnTracks", "Traccar JSON"):
        post(stage, client, body)
    feature = {"geometry": {"type": "Point", "coordinates": message}, "properties": {"a": message}}
    for batch in (message, [message], [feature]):
        post(stage, "Overland", json.dumps({"locations": batch, "current": told}).encode())
    for where in (message, {"coords": message}, {"coords": {"latitude": message}}):
        post(stage, "Traccar JSON", json.dumps({"location": where}).encode())


@FUZZ
@given(
    pairs=st.lists(
        st.tuples(
            st.sampled_from(["lat", "lon", "location", "timestamp", "time", "id", "\x00", "é"]),
            st.sampled_from([str(TRUE.lat), str(TRUE.lon), "", "NaN", "1e999", "٣", "-", "1_0"])
            | st.text(max_size=12),
        ),
        max_size=5,
    )
)
def test_any_query_is_answered(pairs: list[tuple[str, str]], stage: Hostile) -> None:
    printable = [(name, text) for name, text in pairs if text.isprintable() or text == ""]
    for method in ("GET", "POST", "PUT"):
        answer = stage.ask(method, f"/osmand/{stage.tokens['alice']}", params=printable)
        assert (answer.status_code, answer.content) == (200, b"")


def test_damaged_encryption_is_not_taken_and_the_passphrase_stays_inside(stage: Hostile) -> None:
    dice = random.Random("sealed")  # noqa: S311  # repeatable, not secret
    right = owntracks_encrypted(owntracks_ios(*TRUE, stage.tick()), PASSPHRASE)
    answer = stage.ask("POST", "/owntracks", "bob sealed", json=right)
    assert answer.status_code == 200
    assert body_of(answer)["_type"] == "encrypted"
    data = right["data"]
    damaged: list[object] = [None, 1, "", "!", "AAAA", {}]
    unreadable: list[object] = [{**right, "data": value} for value in damaged]
    unreadable += [owntracks_encrypted(right, PASSPHRASE)]
    locked: list[object] = [owntracks_encrypted(owntracks_ios(*TRUE), "another one")]
    locked += [{**right, "data": data[:-8]}]
    either: list[object] = [
        {**right, "data": mutated(dice, data.encode()).decode("latin-1")} for _ in range(3)
    ]
    before, released = unusable(stage), stage.released()
    for message in unreadable:
        lost = stage.ask("POST", "/owntracks", "bob sealed", json=message)
        assert (lost.status_code, lost.content) == (200, b"[]"), message
    assert (unusable(stage), stage.released()) == (before + len(unreadable), released)
    for message in locked:  # with the right key they can be read: they must not be lost
        assert stage.ask("POST", "/owntracks", "bob sealed", json=message).status_code == 400
    for message in either:
        refused = stage.ask("POST", "/owntracks", "bob sealed", json=message)
        assert refused.status_code in (200, 400)
    for message in (right, *locked):  # alice has no passphrase
        assert stage.ask("POST", "/owntracks", "alice", json=message).status_code == 400
    assert stage.released() == released
    said = b"".join(stage.heard)
    assert PASSPHRASE.encode() not in said
    assert all(PASSPHRASE.encode() not in path.read_bytes() for path in stage.folder.iterdir())
