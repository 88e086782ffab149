from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nacl.bindings import crypto_secretbox_open

from hereish.core.types import Kind
from hereish.errors import ParameterError
from hereish.gateway.http.protocols import owntracks
from hereish.gateway.http.protocols.owntracks import OwnTracksMessage
from hereish.gateway.http.protocols.payload import InvalidRequestError
from hereish.gateway.ledger.models import Fix, LedgerRelease
from tests.support.client_payloads import (
    ANY_JSON,
    AT_S,
    FUZZ,
    LAT,
    LON,
    PASSPHRASE,
    TELLTALES,
    owntracks_android,
    owntracks_encrypted,
    owntracks_gpslogger,
    owntracks_ios,
    owntracks_other,
    quickest_s,
    sent,
    tells_nothing,
    usable,
)

RELEASE = LedgerRelease(
    lat=48.9,
    lon=19.3,
    at_s=AT_S + 0.75,
    kind=Kind.HARD,
    cost=0.01,
    accuracy_m=2310.2,
    eps_test=0.001,
    eps_noise=0.009,
    threshold_m=None,
    window="today",
)


def opened(message: dict[str, str], passphrase: str) -> Any:
    """What the app reads in an encrypted answer."""
    assert message.keys() == {"_type", "data"}
    assert message["_type"] == "encrypted"
    sealed = base64.b64decode(message["data"], validate=True)
    key = passphrase.encode().ljust(32, b"\0")
    return json.loads(crypto_secretbox_open(sealed[24:], sealed[:24], key))


def check_refused(body: bytes, passphrase: str | None = None) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        owntracks.read(body, passphrase)
    assert tells_nothing(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("app", [owntracks_ios, owntracks_android])
def test_the_location_of_an_app_is_its_place_its_time_and_its_initials(app: Any) -> None:
    sends = app()
    message = owntracks.read(sent(sends), None)
    assert message == OwnTracksMessage(Fix(LAT, LON, AT_S), sends["tid"], encrypted=False)
    assert message.fix is not None
    assert message.fix.id is None  # one position may be published twice, under two of the app's ids
    assert str(LAT) not in repr(message)


def test_a_time_may_have_a_fraction_and_integers_are_degrees_too() -> None:
    body = sent({"_type": "location", "lat": -90, "lon": 180, "tst": 1.5})
    assert owntracks.read(body, None).fix == (-90.0, 180.0, 1.5, None)


def test_gpslogger_quotes_its_numbers() -> None:
    message = OwnTracksMessage(Fix(LAT, LON, AT_S), None, encrypted=False)
    assert owntracks.read(sent(owntracks_gpslogger()), None) == message
    assert owntracks.read(sent(owntracks_gpslogger() | {"tst": f" {AT_S}000 "}), None) == message
    sealed = sent(owntracks_encrypted(owntracks_gpslogger()))
    assert owntracks.read(sealed, PASSPHRASE).fix == message.fix


@pytest.mark.parametrize(("lat", "lon"), [("90.0001", "0"), ("0", "-180.0001"), ("1e999", "0")])
def test_a_quoted_place_off_the_earth_is_nonsense_too(lat: str, lon: str) -> None:
    check_refused(sent(owntracks_gpslogger() | {"lat": lat, "lon": lon}))


def test_long_texts_are_refused_as_quickly_as_they_are_long() -> None:
    def read(field: str, size: int) -> float:
        body = sent(owntracks_gpslogger() | {field: "1" * size + "x"})
        return quickest_s(lambda: check_refused(body))

    for field in ("lat", "lon", "tst"):
        assert read(field, 64_000) < 100 * read(field, 2_000), field


@pytest.mark.parametrize("message", owntracks_other(), ids=lambda message: str(message["_type"]))
def test_messages_about_something_else_have_no_fix(message: dict[str, Any]) -> None:
    tid = message.get("tid")
    assert owntracks.read(sent(message), None) == OwnTracksMessage(None, tid, encrypted=False)
    sealed = sent(owntracks_encrypted(message))
    assert owntracks.read(sealed, PASSPHRASE) == OwnTracksMessage(None, tid, encrypted=True)


@pytest.mark.parametrize("body", [b"", b" \r\n"])
def test_an_empty_body_has_no_fix(body: bytes) -> None:
    assert owntracks.read(body, PASSPHRASE) == OwnTracksMessage(None, None, encrypted=False)


@pytest.mark.parametrize("field", ["lat", "lon", "tst"])
@pytest.mark.parametrize(
    "value",
    [
        *("null", "true", "[]", "{}", "1e999", "9" * 400),
        *('""', '" "', '"noon"', '"NaN"', '"inf"', '"1e999"', '"4_8"', '"0x43"', '"48,73"', '"٤٨"'),
        *('"true"', '["48.73"]', f'"{"0" * 65}"', f'"{"9" * 5000}"', '"2026-05-05T12:00:00Z"'),
    ],
)
def test_a_location_needs_numbers_for_its_place_and_time(field: str, value: str) -> None:
    with_it = sent(owntracks_ios() | {field: "HERE"}).replace(b'"HERE"', value.encode())
    check_refused(with_it)
    check_refused(sent({key: value for key, value in owntracks_ios().items() if key != field}))


@pytest.mark.parametrize(
    ("lat", "lon"), [(90.0001, 0), (-90.0001, 0), (0, 180.0001), (0, -180.0001)]
)
def test_a_location_off_the_earth_is_nonsense(lat: float, lon: float) -> None:
    check_refused(sent(owntracks_ios(lat, lon)))


@pytest.mark.parametrize("tst", [-1, 0, 16_725_225_600, 1e11, 1e17])
def test_times_before_1970_and_from_2500_on_are_nonsense(tst: float) -> None:
    check_refused(sent(owntracks_ios(at_s=tst)))
    assert owntracks.read(sent(owntracks_ios(at_s=16_725_225_599)), None).fix is not None


def test_what_nobody_reads_may_be_no_number_or_come_twice() -> None:
    body = sent(owntracks_ios())[:-1]
    for odd in (b'"x":NaN', b'"x":-Infinity', b'"x":{"a":48.7315926,"a":1}'):
        assert owntracks.read(body + b"," + odd + b"}", None).fix == (LAT, LON, AT_S, None)
        lwt = b'{"_type":"lwt","tst":1,' + odd + b"}"
        assert owntracks.read(lwt, None).fix is None


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"tst": 0}, "time"),
        ({"lat": None}, "place"),
        ({"lat": 91, "tst": 0}, "place"),
        ({"_type": None}, "body"),
    ],
)
def test_why_a_message_cannot_be_used_is_one_of_few_words(
    message: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        owntracks.read(sent(owntracks_ios() | message), None)
    assert refused.value.reason == reason


def test_only_a_key_that_differs_may_be_set_right_later() -> None:
    sealed = owntracks_encrypted(owntracks_ios())
    for passphrase, message, reason in (
        (None, sealed, "key"),
        ("another", sealed, "key"),
        (PASSPHRASE, {**sealed, "data": "?"}, "body"),
        (PASSPHRASE, {**sealed, "data": sealed["data"][:52]}, "body"),  # too short for any key
        (PASSPHRASE, owntracks_encrypted(sealed), "body"),
    ):
        with pytest.raises(InvalidRequestError) as refused:
            owntracks.read(sent(message), passphrase)
        assert refused.value.reason == reason


@pytest.mark.parametrize(
    "body",
    [
        b"48.7315926,19.1462837",
        b"48.7315926",
        b'"48.7315926"',
        b"null",
        b"{",
        b"{}",
        b'{"_type": 48.7315926}',
        b'{"_type":"location","lat":48.7315926,"lon":NaN,"tst":1}',
        b'{"_type":"location","lat":48.7315926,"lat":1,"lon":19.1462837,"tst":1}',
        b"\xff\xfe48.7315926",
        b'{"_type":"lwt","x":' + b"7" * 5000 + b"}",
        b'{"_type":"lwt","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 100_000,
        sent([owntracks_ios()]),  # the apps send one message a request
        json.dumps(owntracks_ios()).encode("utf-16"),
    ],
)
def test_what_is_no_message_is_nonsense_and_the_error_does_not_repeat_it(body: bytes) -> None:
    check_refused(body)


def test_an_encrypted_message_is_read_with_its_passphrase() -> None:
    body = sent(owntracks_encrypted(owntracks_android()))
    message = owntracks.read(body, PASSPHRASE)
    assert message == OwnTracksMessage(Fix(LAT, LON, AT_S), "7b", encrypted=True)
    plain = owntracks.read(sent(owntracks_android()), PASSPHRASE)
    assert plain == dataclasses.replace(message, encrypted=False)


def test_base64_may_be_in_lines() -> None:
    sealed = owntracks_encrypted(owntracks_ios())
    sealed["data"] = base64.encodebytes(base64.b64decode(sealed["data"])).decode()
    assert "\n" in sealed["data"].strip()
    assert owntracks.read(sent(sealed), PASSPHRASE).fix == (LAT, LON, AT_S, None)


def test_errors_about_encryption_say_what_to_do() -> None:
    sealed = owntracks_encrypted(owntracks_ios())
    assert "set the app's encryption key" in check_refused(sent(sealed))
    words = check_refused(sent(sealed), "another")
    assert "make the encryption key in the app and the passphrase of this device the same" in words
    assert "another" not in words
    damaged = bytearray(base64.b64decode(sealed["data"]))
    damaged[-1] ^= 1
    damage = {**sealed, "data": base64.b64encode(damaged).decode()}
    assert check_refused(sent(damage), PASSPHRASE) == words


@pytest.mark.parametrize("data", [None, 7, "?", "AAA", "ä", [], "\ud800"])
def test_data_that_is_not_base64_is_nonsense(data: object) -> None:
    assert "damaged" in check_refused(sent({"_type": "encrypted", "data": data}), PASSPHRASE)


@pytest.mark.parametrize("size", [0, 1, 23, 24, 25, 39, 40, 41])
def test_data_that_is_too_short_is_nonsense(size: int) -> None:
    data = base64.b64encode(bytes(size)).decode()
    check_refused(sent({"_type": "encrypted", "data": data}), PASSPHRASE)


def test_a_message_is_encrypted_once() -> None:
    twice = owntracks_encrypted(owntracks_encrypted(owntracks_ios()))
    assert "twice" in check_refused(sent(twice), PASSPHRASE)
    check_refused(sent(owntracks_encrypted([owntracks_ios()])), PASSPHRASE)
    check_refused(sent(owntracks_encrypted(LAT)), PASSPHRASE)


@pytest.mark.parametrize("passphrase", ["x", "x" * 32, "ä" * 16, PASSPHRASE])
def test_passphrases_of_up_to_32_bytes_are_taken(passphrase: str) -> None:
    owntracks.check_passphrase(passphrase)
    body = sent(owntracks_encrypted(owntracks_ios(), passphrase))
    assert owntracks.read(body, passphrase).fix == (LAT, LON, AT_S, None)


@pytest.mark.parametrize(
    ("passphrase", "found"),
    [("", "0 bytes"), ("x" * 33, "33 bytes"), ("ä" * 17, "34 bytes"), ("q\ud800", "characters")],
)
def test_other_passphrases_are_refused_when_they_are_set(passphrase: str, found: str) -> None:
    with pytest.raises(ParameterError, match=f"1 to 32 bytes in UTF-8, found {found}") as refused:
        owntracks.check_passphrase(passphrase)
    assert refused.value.__context__ is None  # a UnicodeEncodeError holds the passphrase
    assert not passphrase or passphrase not in str(refused.value)


@pytest.mark.parametrize(
    ("tid", "kept"),
    [
        ("in", "in"),
        ("i", "i"),
        ("ines@48.73", "in"),
        ("語語語", "語語"),
        ("", None),
        ("  ", None),
        ("a\0", None),
        ("a\n", None),
        ("\ud800", None),
        (7, None),
        (None, None),
        (["in"], None),
    ],
)
def test_initials_are_at_most_two_printable_characters(tid: object, kept: str | None) -> None:
    body = json.dumps(owntracks_ios() | {"tid": tid}).encode()
    assert owntracks.read(body, None).tid == kept
    if isinstance(tid, str):
        assert owntracks.location(RELEASE, tid).get("tid") == kept


def test_what_leaves_is_the_release_and_the_initials() -> None:
    expected = {"_type": "location", "lat": 48.9, "lon": 19.3, "tst": AT_S, "acc": 2311}
    assert owntracks.location(RELEASE, None) == expected
    assert owntracks.location(RELEASE, "in") == {**expected, "tid": "in"}
    assert type(owntracks.location(RELEASE, None)["tst"]) is int
    exact = dataclasses.replace(RELEASE, accuracy_m=0.0)
    assert owntracks.location(exact, None)["acc"] == 1


@pytest.mark.parametrize("app", [owntracks_ios, owntracks_android])
def test_nothing_of_a_message_but_its_initials_comes_back(app: Any) -> None:
    message = owntracks.read(sent(app()), None)
    answer = owntracks.encode_response(RELEASE, message.tid, None)
    friend, card = json.loads(answer)
    assert card == {"_type": "card", "tid": app()["tid"], "name": "hereish"}
    assert friend == owntracks.location(RELEASE, app()["tid"])
    assert friend.keys() == {"_type", "lat", "lon", "tst", "acc", "tid"}
    assert not any(telltale in answer.decode() for telltale in (*TELLTALES, str(LAT), str(LON)))


def test_without_a_release_the_app_gets_an_empty_array() -> None:
    assert owntracks.encode_response(None, "in", None) == b"[]"
    assert owntracks.encode_response(None, "in", PASSPHRASE) == b"[]"


def test_a_card_needs_initials_to_belong_to() -> None:
    assert json.loads(owntracks.encode_response(RELEASE, None, None)) == [
        owntracks.location(RELEASE, None)
    ]


def test_an_encrypted_answer_is_one_box_with_the_array_in_it() -> None:
    answer = json.loads(owntracks.encode_response(RELEASE, "in", PASSPHRASE))
    assert opened(answer, PASSPHRASE) == json.loads(owntracks.encode_response(RELEASE, "in", None))
    again = json.loads(owntracks.encode_response(RELEASE, "in", PASSPHRASE))
    assert answer["data"][:32] != again["data"][:32]  # a nonce is never used twice


def check_read(body: bytes, passphrase: str | None) -> None:
    """Whatever it is: a usable fix, none, or an error that tells nothing."""
    message, refused = OwnTracksMessage(None, None, encrypted=False), None
    try:
        message = owntracks.read(body, passphrase)
    except InvalidRequestError as error:
        refused = error
    assert refused is None or tells_nothing(refused)
    assert message.tid is None or len(message.tid.encode()) <= 8
    if message.fix is not None:
        assert usable(message.fix)


@FUZZ
@given(st.binary(max_size=200))
@example(b'{"_type":"location","lat":1E400,"lon":0,"tst":1}')
def test_arbitrary_bytes_are_read_or_refused(body: bytes) -> None:
    check_read(body, None)
    check_read(body, PASSPHRASE)


@FUZZ
@given(ANY_JSON)
def test_arbitrary_json_is_read_or_refused(message: object) -> None:
    check_read(sent(message), PASSPHRASE)
    check_read(sent(owntracks_encrypted(message)), PASSPHRASE)
    check_read(sent({"_type": "encrypted", "data": message}), PASSPHRASE)


@FUZZ
@given(st.dictionaries(st.sampled_from(["_type", "lat", "lon", "tst", "tid", "acc"]), ANY_JSON))
def test_a_location_with_anything_in_its_fields_is_read_or_refused(fields: dict[str, Any]) -> None:
    check_read(sent(owntracks_ios() | fields), None)
    check_read(sent(owntracks_ios() | fields | {"_type": "location"}), None)
