"""The service as people run it: `hereish serve`, real HTTP, payloads as the apps send them."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from nacl.secret import SecretBox

from hereish import lbs
from hereish.client import Client
from hereish.core import presets
from hereish.gateway.admin import accounts
from hereish.gateway.http.protocols import owntracks
from hereish.gateway.http.schemas import ReportResponseBody
from hereish.gateway.ledger.ledger import Ledger
from tests.support import client_payloads as payloads
from tests.support.stage import HELSINKI, Running, member, paths_in, serving

PASSPHRASE = payloads.PASSPHRASE


class Town:
    """A running gateway and its tokens."""

    def __init__(self, running: Running, folder: Path) -> None:
        self.running, self._folder, self._number = running, folder, 0

    def token(self, **settings: Any) -> str:
        """Of a new user, so that tests do not meet."""
        device = {
            name: settings.pop(name) for name in ("passphrase", "show_release") if name in settings
        }
        self._number += 1
        ledger = Ledger.open(self.running.where)
        try:
            member(ledger, f"user{self._number}", **settings)
            return accounts.new_token(ledger, f"user{self._number}", "phone", **device)
        finally:
            ledger.close()

    def post(self, path: str, body: object, token: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.post(f"{self.running.url}{path}", content=content, headers=headers)

    def report(self, token: str, at_s: float, **more: object) -> dict[str, object]:
        told = {"lat": HELSINKI[0], "lon": HELSINKI[1], "at": payloads.iso(at_s), **more}
        answer = self.post("/v1/report", told, token)
        assert answer.status_code == 200
        found: dict[str, object] = answer.json()
        return found

    def get(self, path: str, token: str) -> dict[str, object]:
        answer = httpx.get(
            f"{self.running.url}{path}", headers={"Authorization": f"Bearer {token}"}
        )
        assert answer.status_code == 200
        found: dict[str, object] = answer.json()
        return found

    def releases(self, token: str) -> list[dict[str, object]]:
        found = self.get("/v1/history?limit=1000", token)["releases"]
        assert isinstance(found, list)
        return found


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    where = paths_in(folder)
    Ledger.open(where).close()
    with serving(where) as running:
        yield Town(running, folder)


def test_a_report_has_the_fields_of_the_contract(town: Town) -> None:
    told = town.report(town.token(), time.time() - 60)
    contract = ("lat", "lon", "at", "kind", "cost", "spent", "remaining", "window")
    assert list(told)[: len(contract)] == list(contract)
    response = ReportResponseBody.model_validate_json(json.dumps(told), strict=True)
    assert response.model_dump(mode="json") == told
    assert told["kind"] == "hard"
    assert told["spent"] == told["cost"]
    assert (told["lat"], told["lon"]) != HELSINKI


def test_a_time_may_be_iso_or_seconds(town: Town) -> None:
    token = town.token()
    at_s = float(int(time.time()) - 60)
    first = town.report(token, at_s)
    assert town.report(token, 0, at=at_s) == first
    assert town.report(token, 0, at=payloads.iso(at_s).replace("Z", "+00:00")) == first


def test_the_same_id_is_paid_once(town: Town) -> None:
    token = town.token()
    first = town.report(token, time.time() - 60, id="a")
    again = town.report(token, time.time() - 30, id="a")
    assert again == first
    assert len(town.releases(token)) == 1


def test_budget_history_and_devices_tell_of_ones_own_user(town: Town) -> None:
    token, other = town.token(), town.token()
    for seconds in (180, 120, 60):
        town.report(token, time.time() - seconds)
    budget = town.get("/v1/budget", token)
    assert budget["reports"] == len(town.releases(token)) == 3
    assert budget["spent"] == sum(float(str(r["cost"])) for r in town.releases(token))
    assert town.releases(other) == []
    devices = town.get("/v1/devices", token)["devices"]
    assert devices == [{"device": "phone", "points_today": 3}]


def test_owntracks_as_both_apps_send_it(town: Town) -> None:
    token = town.token(show_release=True)
    for i, message in enumerate((payloads.owntracks_ios, payloads.owntracks_android)):
        at_s = int(time.time()) - 120 + 60 * i
        answer = httpx.post(
            f"{town.running.url}/owntracks",
            content=payloads.sent(message(at_s=at_s)),
            auth=("somebody else", token),
            headers={"X-Limit-U": "user1", "X-Limit-D": "other"},
        )
        assert answer.status_code == 200
        friend, card = answer.json()
        assert (card["_type"], card["tid"]) == ("card", friend["tid"])
        assert set(friend) <= {"_type", "lat", "lon", "tst", "acc", "tid"}
        assert friend["tst"] == at_s
    assert len(town.releases(token)) == 2


def test_owntracks_is_told_nothing_unless_the_owner_wants_it(town: Town) -> None:
    token = town.token()
    message = payloads.sent(payloads.owntracks_ios(at_s=int(time.time()) - 60))
    answer = httpx.post(f"{town.running.url}/owntracks", content=message, auth=("x", token))
    assert (answer.status_code, answer.json()) == (200, [])
    assert len(town.releases(token)) == 1


def test_other_messages_of_owntracks_are_taken_and_forgotten(town: Town) -> None:
    token = town.token()
    for message in (b"", *map(payloads.sent, payloads.owntracks_other())):
        answer = httpx.post(f"{town.running.url}/owntracks", content=message, auth=("x", token))
        assert (answer.status_code, answer.json()) == (200, [])
    assert town.releases(token) == []


def test_encrypted_owntracks_is_answered_encrypted(town: Town) -> None:
    token = town.token(show_release=True, passphrase=PASSPHRASE)
    plain = payloads.sent(payloads.owntracks_ios(at_s=int(time.time()) - 60))
    sealed = json.dumps(owntracks.encrypt(plain, PASSPHRASE)).encode()
    answer = httpx.post(f"{town.running.url}/owntracks", content=sealed, auth=("x", token))
    assert answer.status_code == 200
    told = answer.json()
    assert told["_type"] == "encrypted"
    box = SecretBox(PASSPHRASE.encode().ljust(32, b"\0"))
    friend, _ = json.loads(box.decrypt(base64.b64decode(told["data"])))
    assert friend["lat"] == town.releases(token)[0]["lat"]
    stranger = json.dumps(owntracks.encrypt(plain, "another one")).encode()
    refused = httpx.post(f"{town.running.url}/owntracks", content=stranger, auth=("x", token))
    assert refused.status_code == 400


def test_overland_is_answered_exactly_and_sorted(town: Town) -> None:
    token = town.token()
    now = time.time()
    times = [now - 60 * i for i in (3, 1, 4, 2)]
    features = [payloads.overland_feature(timestamp=payloads.iso(at_s)) for at_s in times]
    features.append({"type": "Feature", "geometry": None, "properties": {}})
    answer = town.post("/overland", payloads.sent(payloads.overland(*features)), token)
    assert (answer.status_code, answer.content) == (200, b'{"result":"ok"}')
    assert len(town.releases(token)) == 4


def test_a_thousand_points_at_once_are_one_request(town: Town) -> None:
    token = town.token(interval_s=60.0)
    now = time.time()
    features = [
        payloads.overland_feature(timestamp=payloads.iso(now - 7200 + 5 * i)) for i in range(1000)
    ]
    for _ in range(3):  # and again, as it does when an answer was lost
        answer = town.post("/overland", payloads.sent(payloads.overland(*features)), token)
        assert (answer.status_code, answer.content) == (200, b'{"result":"ok"}')
    times = [str(release["at"]) for release in town.releases(token)]
    assert 10 < len(times) == len(set(times)) < 85


def test_osmand_traccar_and_gpslogger(town: Town) -> None:
    token = town.token()
    now = int(time.time())
    address = f"{town.running.url}/osmand/{token}"
    queries = [payloads.osmand_query, payloads.traccar_client_query, payloads.gpslogger_query]
    for i, query in enumerate(queries):
        answer = httpx.get(address, params=dict(query(at_s=now - 600 + 60 * i)))
        assert (answer.status_code, answer.content) == (200, b"")
    form = httpx.post(address, data={"lat": "60.1", "lon": "24.9", "timestamp": str(now - 300)})
    assert (form.status_code, form.content) == (200, b"")
    message = payloads.sent(payloads.traccar_client_json(at_s=now - 200))
    kind = {"Content-Type": "application/json"}
    answer = httpx.post(address, content=message, headers=kind)
    assert (answer.status_code, answer.content) == (200, b"")
    assert len(town.releases(token)) == 5


@pytest.mark.parametrize("ending", ["", "/"])
def test_an_address_may_end_with_a_slash(town: Town, ending: str) -> None:
    token, tst = town.token(interval_s=0.0), int(time.time()) - 100
    sent = {"_type": "location", "lat": HELSINKI[0], "lon": HELSINKI[1], "tst": tst, "tid": "al"}
    assert town.post(f"/owntracks{ending}", sent, token).status_code == 200
    batch = payloads.overland(payloads.overland_feature(timestamp=payloads.iso(tst + 10)))
    assert town.post(f"/overland{ending}", batch, token).text == '{"result":"ok"}'
    place = f"lat={HELSINKI[0]}&lon={HELSINKI[1]}&timestamp={tst + 20}"
    assert httpx.get(f"{town.running.url}/osmand/{token}{ending}?{place}").status_code == 200
    assert len(town.releases(token)) == 3
    refused = httpx.post(f"{town.running.url}/owntracks{ending}", content=b"")
    assert refused.headers["WWW-Authenticate"].startswith("Basic")


def test_a_spent_budget_alarms_no_app(town: Town) -> None:
    # One budget for ever: ten minutes ago may have been yesterday.
    token = town.token(reports=2, accuracy_m=None, mechanism="independent", window="none")
    now = time.time()
    for i in range(4):
        told = town.report(token, now - 600 + 60 * i)
    assert (told["lat"], told["lon"], told["kind"], told["cost"]) == (None, None, "none", 0.0)
    message = payloads.sent(payloads.owntracks_ios(at_s=int(now) - 60))
    answer = httpx.post(f"{town.running.url}/owntracks", content=message, auth=("x", token))
    assert (answer.status_code, answer.json()) == (200, [])
    batch = payloads.overland(payloads.overland_feature(timestamp=payloads.iso(now - 50)))
    assert town.post("/overland", payloads.sent(batch), token).content == b'{"result":"ok"}'
    query = dict(payloads.osmand_query(at_s=int(now) - 40))
    assert httpx.get(f"{town.running.url}/osmand/{token}", params=query).status_code == 200
    assert len(town.releases(token)) == 2
    assert town.get("/v1/budget", token)["exhausted"] is True


def test_budgets_of_longer_windows_are_told_and_a_full_one_is_named(town: Town) -> None:
    level = math.log(10)
    settings = {"reports": 2, "accuracy_m": None, "mechanism": "independent"}
    token = town.token(**settings, limits=(("30d", level / 2), ("forever", 9 * level)))
    now = time.time()
    told = [town.report(token, now - 600 + 60 * i) for i in range(2)]
    assert [one["full"] for one in told] == [None, "the reports of any 30 days"]
    assert (told[1]["lat"], told[1]["kind"], told[1]["cost"]) == (None, "none", 0.0)
    assert town.report(token, now - 540)["full"] == "the reports of any 30 days"  # and again
    with Client(town.running.url, token) as client:
        budget = client.budget()
        assert budget.exhausted
        assert [limit.window for limit in budget.limits] == [
            "the reports of any 30 days",
            "all reports together",
        ]
        spent = [limit.spent / limit.total for limit in budget.limits]
        assert spent == pytest.approx([1.0, 1.0 / 18.0])
        assert client.report(HELSINKI).full == "the reports of any 30 days"


def test_the_library_s_own_client_talks_to_it(town: Town) -> None:
    with Client(town.running.url, town.token()) as client:
        report = client.report(HELSINKI, report_id="a")
        assert report.value is not None
        assert client.report(HELSINKI, report_id="a").value == report.value
        assert client.budget().spent == report.cost
        assert [past.value for past in client.history()] == [report.value]


def test_receivers_are_told_how_far_a_release_may_be_off(town: Town) -> None:
    """The memory of places moves noise, and noise first accepts guesses in another way."""
    with Client(town.running.url, town.token(preset="whole-day", interval_s=0.0)) as client:
        report = client.report(HELSINKI)
    assert (report.kind, report.noise_first) == ("hard", True)
    assert report.moves_noise == presets.WHOLE_DAY.reach
    radius_m = lbs.accuracy_m(report)
    unmoved_m = lbs.accuracy_m(dataclasses.replace(report, moves_noise=0.0))
    assert radius_m is not None
    assert unmoved_m is not None
    assert radius_m > unmoved_m + report.moves_noise / report.eps_noise
    with Client(town.running.url, town.token()) as client:
        plain = client.report(HELSINKI)
    assert (plain.noise_first, plain.moves_noise) == (False, 0.0)


def test_the_budget_says_how_it_is_spent_and_when_it_ends(town: Town) -> None:
    lasting = town.get("/v1/budget", town.token(preset="whole-day"))
    assert lasting["policy"] == "whole-day (a budget that lasts the day, for anybody)"
    forecast = lasting["forecast"]
    assert isinstance(forecast, dict)
    assert forecast.pop("looked_until") == forecast["window_ends"]
    midnight = datetime.fromisoformat(forecast.pop("window_ends"))
    assert (midnight.hour, midnight.minute) == (0, 0)
    assert forecast == {
        "lasts_share": 1.0,
        "ends_early": None,
        "ends_typical": None,
        "ends_late": None,
    }
    ending = town.get("/v1/budget", town.token(window="none", interval_s=600.0))["forecast"]
    assert isinstance(ending, dict)
    now = datetime.now(UTC)
    ends = [datetime.fromisoformat(ending[f"ends_{when}"]) for when in ("early", "late")]
    assert now - timedelta(minutes=5) < ends[0] <= ends[1] < now + timedelta(days=1)


def test_an_operator_sees_numbers_and_no_names(town: Town) -> None:
    token = town.token()
    town.report(token, time.time() - 60)
    assert httpx.get(f"{town.running.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{town.running.url}/readyz").json() == {"status": "ok"}
    numbers = httpx.get(f"{town.running.url}/metrics").text
    assert 'hereish_requests_total{route="/v1/report",status="200"}' in numbers
    assert 'hereish_points_total{outcome="hard"}' in numbers
    assert "hereish_outbox_waiting 0.0" in numbers
    assert "user1" not in numbers
    assert "phone" not in numbers


def test_logs_are_json_and_name_no_address(town: Town) -> None:
    token = town.token()
    httpx.get(f"{town.running.url}/osmand/{token}", params=dict(payloads.osmand_query(at_s=1.7e9)))
    httpx.get(f"{town.running.url}/nowhere/{token}")

    def routes() -> set[object]:
        lines = town.running.lines()
        return {line.get("route") for line in lines if line["event"] == "request"}

    until(lambda: routes() >= {"/osmand/{secret}", "other"})  # written after the answer
    assert token not in town.running.log.read_text("utf-8")


def until(true: Callable[[], bool]) -> None:
    """Wait for something that happens soon."""
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within 10 s")


def _has_begun(running: Running) -> bool:
    """Whether the server has a connection: what it read is then a request under way."""
    port = f"{running.port:04X}"
    rows = Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
    return any(row.split()[1].endswith(f":{port}") and row.split()[3] == "01" for row in rows)


def test_it_ends_gracefully_after_the_requests_under_way(tmp_path: Path) -> None:
    where = paths_in(tmp_path)
    ledger = Ledger.open(where)
    token = member(ledger)
    ledger.close()
    answers: list[int] = []
    half_way, told = threading.Event(), threading.Event()
    feature = payloads.overland_feature(timestamp=payloads.iso(time.time() - 60))
    body = payloads.sent(payloads.overland(feature))

    def pieces() -> Iterator[bytes]:
        yield body[:100]
        half_way.set()
        told.wait(10)
        yield body[100:]

    with serving(where) as running:

        def post() -> None:
            headers = {"Authorization": f"Bearer {token}"}
            url = f"{running.url}/overland"
            answers.append(httpx.post(url, content=pieces(), headers=headers).status_code)

        thread = threading.Thread(target=post)
        thread.start()
        half_way.wait(10)
        until(lambda: _has_begun(running))
        running.process.terminate()
        until(lambda: "Shutting down" in running.log.read_text("utf-8"))
        told.set()
        thread.join()
        code = running.process.wait(30)
    assert code == 0
    assert answers == [200]
    assert "stopped" in {line["event"] for line in running.lines()}


def test_it_listens_on_this_machine_alone(town: Town) -> None:
    sockets = Path("/proc/net/tcp").read_text("ascii").splitlines()
    port = f"{town.running.port:04X}"
    listening = [line for line in sockets if f":{port} 00000000:0000 0A" in line]
    assert len(listening) == 1
    assert listening[0].split()[1] == f"0100007F:{port}"
