"""Tokens that are wrong, and people who ask for what is not theirs."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hereish.gateway.admin import accounts
from hereish.gateway.ledger import tokens
from tests.support.client_payloads import owntracks_ios
from tests.support.hostile_stage import (
    Hostile,
    body_of,
    head,
    hostile,
    more_tokens,
    operator,
    payloads,
    statuses,
)
from tests.support.leaks import TRUE

READS = ("/v1/budget", "/v1/history", "/v1/devices")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    users = ("alice", "bob", "carol")
    with hostile(tmp_path_factory.mktemp("tokens"), *users) as stage:
        yield stage


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def everywhere(
    stage: Hostile, authorization: list[bytes], token: str | None = None
) -> list[httpx.Response]:
    """Every route that needs a token: with these headers, or the token where it is in the path."""
    headers = [(b"Authorization", value) for value in authorization]
    answers = [stage.ask("GET", path, None, headers=headers) for path in READS]
    for method, path, kind, body in payloads(token or "", time.time()).values():
        if token or not path.startswith("/osmand"):
            told = [*headers, (b"Content-Type", kind.encode())]
            answers.append(stage.ask(method, path, None, headers=told, content=body))
    return answers


def wrong_headers(token: str) -> dict[str, list[bytes]]:
    name, secret = token.rsplit("_", 1)
    good, other = token.encode(), tokens.generate_token()
    swapped = ("b" if secret[0] == "a" else "a") + secret[1:]
    return {
        "none": [],
        "empty": [b""],
        "a scheme alone": [b"Bearer"],
        "garbage": [b"Bearer garbage"],
        "no scheme": [good],
        "another scheme": [b"Digest " + good],
        "the scheme twice": [b"Bearer Bearer " + good],
        "a token of nobody": [f"Bearer {other}".encode()],
        "the right id with a wrong secret": [f"Bearer {name}_{swapped}".encode()],
        "the right id with the secret of another": [f"Bearer {name}_{other[-52:]}".encode()],
        "the right secret with another id": [f"Bearer {other[:24]}_{secret}".encode()],
        "upper case": [f"Bearer {token.upper()}".encode()],
        "cut": [b"Bearer " + good[:-1]],
        "longer": [b"Bearer " + good + b"a"],
        "twice in one": [b"Bearer " + good + b" " + good],
        "with a comma": [b"Bearer " + good + b", Bearer " + good],
        "in quotes": [b'Bearer "' + good + b'"'],
        "very long": [b"Bearer " + b"a" * 30_000],
        "very long with the right beginning": [b"Bearer " + good * 300],
        "not ASCII": ["Bearer hereish_ümläüt".encode()],
        "not UTF-8": [b"Bearer \xff\xfe\xfd"],
        "other digits": [f"Bearer hereish_{'١' * 16}_{secret}".encode()],
        "Basic with the token as the user": [basic(token, "").encode()],
        "Basic without a colon": [b"Basic " + base64.b64encode(good)],
        "Basic that is no base64": [b"Basic " + good],
        "Basic that is no UTF-8": [b"Basic " + base64.b64encode(b"a:\xff\xfe")],
        "Basic of a password and a colon": [basic("alice", f"{token}:").encode()],
        "Basic with an empty password": [basic("alice", "").encode()],
        "twice, the first one wrong": [f"Bearer {other}".encode(), b"Bearer " + good],
    }


@pytest.mark.parametrize("what", wrong_headers(tokens.generate_token()))
def test_a_wrong_token_gets_401_everywhere(what: str, stage: Hostile) -> None:
    for answer in everywhere(stage, wrong_headers(stage.tokens["alice"])[what]):
        assert answer.status_code == 401, (what, answer.request.url)
        assert answer.headers["www-authenticate"].startswith(("Basic", "Bearer"))
        assert list(body_of(answer)) == ["error"]


@pytest.mark.parametrize(
    "secret",
    ["garbage", "a" * 4000, "%00", "%ff%fe", "..%2f..%2fkey", "'", "%F0%9F%A6%8A", "%0d%0a"],
)
def test_a_wrong_secret_in_the_path_gets_401(secret: str, stage: Hostile) -> None:
    good = stage.tokens["alice"]
    for path in (secret, f"{good}{secret}", f"{secret}{good}", good[:-1], good.upper()):
        for method in ("GET", "POST"):
            answer = stage.ask(method, f"/osmand/{path}?lat={TRUE.lat}&lon={TRUE.lon}", None)
            # A slash makes it another address, at which there is nothing.
            assert answer.status_code == (404 if "%2f" in path else 401), path


def test_a_token_in_another_place_is_no_token(stage: Hostile) -> None:
    good = stage.tokens["alice"]
    for params in ({"token": good}, {"access_token": good}, {"authorization": f"Bearer {good}"}):
        assert stage.ask("GET", "/v1/budget", None, params=params).status_code == 401
    for name in ("Cookie", "X-Token", "Proxy-Authorization", "X-Authorization"):
        headers = {name: f"Bearer {good}"}
        assert stage.ask("GET", "/v1/budget", None, headers=headers).status_code == 401


def test_a_revoked_token_and_a_disabled_user_get_401_at_once(stage: Hostile) -> None:
    lost = more_tokens(stage, "carol", "lost phone")
    kept = more_tokens(stage, "carol", "kept phone")
    both = [everywhere(stage, [f"Bearer {token}".encode()], token) for token in (lost, kept)]
    assert {answer.status_code for answers in both for answer in answers} == {200}
    with operator(stage) as ledger:
        accounts.revoke_token(ledger, lost)
    gone = everywhere(stage, [f"Bearer {lost}".encode()], lost)
    assert {answer.status_code for answer in gone} == {401}
    assert stage.ask("GET", "/v1/budget", "carol kept phone").status_code == 200
    with operator(stage) as ledger:
        accounts.set_disabled(ledger, "carol", True)
    gone = everywhere(stage, [f"Bearer {kept}".encode()], kept)
    assert {answer.status_code for answer in gone} == {401}
    # The words do not tell which of the reasons it was.
    unknown = everywhere(
        stage, [f"Bearer {tokens.generate_token()}".encode()], tokens.generate_token()
    )
    assert {answer.text for answer in gone} == {answer.text for answer in unknown}
    with operator(stage) as ledger:
        accounts.set_disabled(ledger, "carol", False)
    assert stage.ask("GET", "/v1/budget", "carol kept phone").status_code == 200


def test_of_two_headers_the_first_one_counts(stage: Hostile) -> None:
    for first, second in (("alice", "bob"), ("bob", "alice")):
        told = stage.raw(
            head(
                "GET",
                "/v1/budget",
                *(f"Authorization: Bearer {stage.tokens[name]}" for name in (first, second)),
                "Connection: close",
            )
        )
        assert statuses(told) == [200]
        assert f'"user":"{first}"'.encode() in told


def who(stage: Hostile, **headers: str) -> str:
    answer = stage.ask("GET", "/v1/budget", None, headers=headers)
    assert answer.status_code == 200
    return str(body_of(answer)["user"])


def test_only_the_token_says_who_somebody_is(stage: Hostile) -> None:
    alice = stage.tokens["alice"]
    for name in ("alice", "bob", "nobody", "", "admin", "bob/phone"):
        assert who(stage, Authorization=basic(name, alice)) == "alice"
    claims = {"X-Limit-U": "bob", "X-Limit-D": "tablet", "X-Forwarded-User": "bob"}
    assert who(stage, Authorization=f"Bearer {alice}", **claims) == "alice"
    assert who(stage, Authorization=f"bEaReR   {alice}") == "alice"


def points(stage: Hostile, user: str) -> dict[str, int]:
    told = body_of(stage.ask("GET", "/v1/devices", user))["devices"]
    return {row["device"]: row["points_today"] for row in told}


def test_owntracks_headers_and_names_do_not_make_it_another_user(stage: Hostile) -> None:
    before = {name: points(stage, name).get("phone", 0) for name in ("alice", "bob")}
    headers = {
        "Authorization": basic("bob", stage.tokens["alice"]),
        "X-Limit-U": "bob",
        "X-Limit-D": "tablet",
    }
    message = {**owntracks_ios(*TRUE, time.time()), "topic": "owntracks/bob/tablet", "user": "bob"}
    answer = stage.ask("POST", "/owntracks?u=bob&d=tablet", None, headers=headers, json=message)
    assert answer.status_code == 200
    assert points(stage, "alice")["phone"] == before["alice"] + 1
    assert points(stage, "bob").get("phone", 0) == before["bob"]
    assert set(points(stage, "alice")) == {"phone"}


def placed(answer: httpx.Response) -> tuple[Any, ...]:
    told = body_of(answer)
    return told["lat"], told["lon"], told["at"], told["kind"]


def test_one_id_of_two_users_is_two_reports(stage: Hostile, tmp_path: Path) -> None:
    with hostile(tmp_path, "alice", "bob", window="none") as fresh:  # an hour may be yesterday
        at_s = time.time() - 3600
        first = {name: fresh.report(name, at=at_s, id="1") for name in ("alice", "bob")}
        assert {placed(answer)[3] for answer in first.values()} == {"hard"}
        assert placed(first["alice"]) != placed(first["bob"])
        for name, answer in first.items():  # sent again, even with another place and time
            again = fresh.report(name, lat=0.0, lon=0.0, at=at_s + 60, id="1")
            assert placed(again) == placed(answer)
            assert body_of(fresh.ask("GET", "/v1/budget", name))["reports"] == 1


def test_one_id_of_two_devices_is_two_reports(tmp_path: Path) -> None:
    with hostile(tmp_path, "alice", window="none") as fresh:  # an hour ago may be yesterday
        more_tokens(fresh, "alice", "tablet")
        with operator(fresh) as ledger:  # both count
            accounts.set_primary(ledger, "alice", "tablet", silence_s=0.0)
        at_s = time.time() - 3600
        one = fresh.report("alice", at=at_s, id="1")
        two = fresh.report("alice tablet", at=at_s + 60, id="1")
        assert placed(one)[2] != placed(two)[2]
        assert placed(fresh.report("alice", at=at_s + 120, id="1")) == placed(one)
        assert placed(fresh.report("alice tablet", at=at_s + 120, id="1")) == placed(two)
        # The ids meet in no way either: a name that ends like the other one's id begins.
        more_tokens(fresh, "alice", "tablet1")
        three = fresh.report("alice tablet1", at=at_s + 180, id="2")
        four = fresh.report("alice tablet", at=at_s + 240, id="12")
        assert placed(three)[2] != placed(four)[2]
        assert body_of(fresh.ask("GET", "/v1/budget"))["reports"] == 4


def test_nobody_reads_what_is_anothers(tmp_path: Path) -> None:
    with hostile(tmp_path, "alice", "mallory") as fresh:
        assert placed(fresh.report("alice"))[3] == "hard"
        alone = {path: fresh.ask("GET", path, "mallory").text for path in READS}
        assert body_of(fresh.ask("GET", "/v1/history", "mallory")) == {"releases": [], "next": None}
        hers = body_of(fresh.ask("GET", "/v1/history", "alice"))["releases"]
        assert len(hers) == 1
        claims = {"user": "alice", "user_id": "1", "u": "alice", "device": "phone", "id": "1"}
        headers = {"X-Limit-U": "alice", "X-Forwarded-User": "alice", "From": "alice"}
        for path in READS:
            answer = fresh.ask("GET", path, "mallory", params=claims, headers=headers)
            assert answer.text == alone[path]
            assert str(hers[0]["lat"]) not in answer.text
            assert "alice" not in answer.text
        for path in ("/v1/history/alice", "/v1/users/1/history", "/v1/history/", "/v1//history"):
            assert fresh.ask("GET", path, "mallory").status_code == 404
        budget = body_of(fresh.ask("GET", "/v1/budget", "mallory"))
        assert (budget["user"], budget["spent"], budget["reports"]) == ("mallory", 0.0, 0)


def test_who_asks_too_often_waits_and_nobody_else_does(tmp_path: Path) -> None:
    with hostile(tmp_path, "alice", "bob", rate=1.0) as fresh:
        more_tokens(fresh, "alice", "tablet")
        seen = [fresh.ask("GET", "/v1/budget") for _ in range(40)]
        codes = [answer.status_code for answer in seen]
        assert set(codes) == {200, 429}
        assert codes[:10] == [200] * 10  # what may come at once
        refused = seen[codes.index(429)]
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        for method, path, kind, body in payloads(fresh.tokens["alice"], time.time()).values():
            for _ in range(3):  # one of them might be due just then
                answer = fresh.ask(method, path, headers={"Content-Type": kind}, content=body)
                if answer.status_code == 429:
                    break
            assert answer.status_code == 429, path
        for other in ("bob", "alice tablet"):
            assert fresh.ask("GET", "/v1/budget", other).status_code == 200
        # Guesses at the secret do not use up what the true token may ask.
        name = fresh.tokens["bob"].rsplit("_", 1)[0]
        for _ in range(30):
            guess = f"Bearer {name}_{tokens.generate_token()[-52:]}"
            wrong = fresh.ask("GET", "/v1/budget", None, headers={"Authorization": guess})
            assert wrong.status_code == 401
        assert fresh.ask("GET", "/v1/budget", "bob").status_code == 200
        # And after the time that it was told, it may again.
        time.sleep(int(refused.headers["retry-after"]))
        assert fresh.ask("GET", "/v1/budget").status_code == 200
