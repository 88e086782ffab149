"""SQL wherever a text may be given. It is a text like any other, or no name at all."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from hereish.errors import HereishError
from hereish.gateway.admin import accounts
from tests.support.client_payloads import osmand_query, overland, overland_feature, owntracks_ios
from tests.support.hostile_stage import MINUTES, Hostile, body_of, hostile, operator
from tests.support.leaks import TRUE
from tests.support.stage import policy

SQL = [
    "'; DROP TABLE users; --",
    "' OR '1'='1",
    '" OR ""="',
    "alice'--",
    "1; DELETE FROM entries",
    "' UNION SELECT digest, digest FROM tokens --",
    "x'); ATTACH DATABASE 'x' AS x; --",
    "%s%(user)s:name?{0}$1@p\\",
    "\\'; COPY users TO STDOUT --",
    "';SELECT pg_sleep(10)--",
    "NULL",
    "\ufeff'\u2019\uff07",
]
# The tables whose rows an injected command would change, or which it would remove.
TABLES = ("ledger", "users", "policies", "tokens", "entries", "receipts", "counts", "removed")
UNCOUNTED = tuple(table for table in TABLES if table != "counts")  # those are written now and then


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    with hostile(tmp_path_factory.mktemp("sql"), "alice", "bob", "carol", window=MINUTES) as stage:
        assert stage.report("bob").status_code == 200
        yield stage
        assert stage.lives()


def rows(stage: Hostile, *tables: str) -> dict[str, list[Any]]:
    connection = sqlite3.connect(stage.folder / "ledger.db")
    try:
        return {
            table: connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608  # our names
            for table in tables
        }
    finally:
        connection.close()


def of_bob(stage: Hostile) -> list[Any]:
    return [row for row in rows(stage, "users")["users"] if row[1] == "bob"]


@pytest.mark.parametrize("sql", SQL)
def test_sql_in_a_report_is_a_text(sql: str, stage: Hostile) -> None:
    before = of_bob(stage)
    at_s = stage.tick()
    first = stage.report("carol", id=sql, at=at_s)
    assert first.status_code == 200
    again, other = (stage.report("carol", id=name, at=at_s + 1) for name in (sql, sql + " "))
    assert body_of(again)["at"] == body_of(first)["at"] != body_of(other)["at"]
    for field in ("lat", "lon", "at"):
        assert stage.report("carol", **{field: sql}).status_code == 422
    assert of_bob(stage) == before
    connection = sqlite3.connect(stage.folder / "ledger.db")
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert set(TABLES) <= found


@pytest.mark.parametrize("sql", SQL)
def test_sql_in_what_a_phone_sends_is_a_text_or_nonsense(sql: str, stage: Hostile) -> None:
    before = of_bob(stage)
    message = {**owntracks_ios(*TRUE, time.time()), "topic": sql, "SSID": sql, "inregions": [sql]}
    for told in ({"tid": sql}, {"tid": sql[:2]}, {sql: sql}, {"_type": sql}):
        assert stage.ask("POST", "/owntracks", json={**message, **told}).status_code == 200
    for told in ({"lat": sql}, {"tst": sql}):
        lost = stage.ask("POST", "/owntracks", json={**message, **told})
        assert (lost.status_code, lost.content) == (200, b"[]")
    feature = overland_feature(*TRUE, sql)
    feature["properties"] |= {"device_id": sql, "wifi": sql, sql: sql}
    assert stage.ask("POST", "/overland", json=overland(feature)).status_code == 200
    path = f"/osmand/{stage.tokens['alice']}"
    query = [*osmand_query(*TRUE, time.time()), ("id", sql), (sql, sql), ("batt", sql)]
    for how in ({"params": query}, {"data": dict(query)}):
        assert stage.ask("POST", path, **how).status_code == 200
    for field in ("lat", "timestamp", "location"):
        lost = stage.ask("GET", path, params={"lat": "1", "lon": "1", field: sql})
        assert (lost.status_code, lost.content) == (200, b"")
    assert of_bob(stage) == before


@pytest.mark.parametrize("sql", SQL)
def test_sql_in_an_address_or_a_header_finds_nobody(sql: str, stage: Hostile) -> None:
    before = rows(stage, *UNCOUNTED)
    token = stage.tokens["alice"]
    for secret in (sql, token + sql, f"hereish_{sql}_{token[-52:]}"):
        assert stage.ask("GET", f"/osmand/{quote(secret, safe='')}", None).status_code == 401
        told = {"Authorization": b"Bearer " + secret.encode()}
        assert stage.ask("GET", "/v1/budget", None, headers=told).status_code == 401
    for params in ({"before": sql}, {"limit": sql}):
        assert stage.ask("GET", "/v1/history", params=params).status_code == 422
    assert rows(stage, *UNCOUNTED) == before


@pytest.mark.parametrize("sql", SQL)
def test_sql_in_the_names_of_an_operator_is_a_name_or_refused(sql: str, stage: Hostile) -> None:
    bob = of_bob(stage)
    with operator(stage) as ledger:
        try:
            accounts.add_user(ledger, sql, policy())
        except HereishError:
            assert "/" in sql or ":" in sql or not sql.isprintable()
            with pytest.raises(HereishError):
                accounts.describe_user(ledger, sql)
            return
        token = accounts.new_token(ledger, sql, sql, passphrase=sql[:8])
        assert accounts.describe_user(ledger, sql).name == sql.strip()
        assert sql.strip() in dict(accounts.list_users(ledger))
        stage.tokens[sql] = token
        budget = body_of(stage.ask("GET", "/v1/budget", sql))
        assert (budget["user"], budget["device"]) == (sql, sql)
        assert stage.report(sql).status_code == 200
        assert [row["device"] for row in body_of(stage.ask("GET", "/v1/devices", sql))["devices"]]
        accounts.set_policy(ledger, sql, policy(reports=5))
        with pytest.raises(accounts.NotFoundError):
            accounts.revoke_token(ledger, sql)
        assert stage.ask("GET", "/v1/budget", sql).status_code == 200
        accounts.set_disabled(ledger, sql, True)
        assert stage.ask("GET", "/v1/budget", sql).status_code == 401
        stage.remember()
        accounts.delete_user(ledger, sql)
        with pytest.raises(accounts.NotFoundError):
            accounts.describe_user(ledger, sql)
    assert of_bob(stage) == bob


def test_sql_through_the_commands_is_a_name_too(stage: Hostile) -> None:
    where = stage.running.where
    placed = ["--database", where.database, "--key-file", str(where.key_file)]
    placed += ["--mark", str(where.mark_file)]
    name = "' OR 1=1; DROP TABLE tokens; --"
    before = of_bob(stage)
    done = [
        subprocess.run(  # noqa: S603  # our own command
            [str(Path(sys.executable).with_name("hereish")), *words, *placed],
            capture_output=True,
            text=True,
            check=False,
        )
        for words in (
            ["user", "add", "--accuracy", "3km", name],
            ["token", "new", "--device", name, name],
            ["user", "show", name],
            ["token", "revoke", name],
            ["user", "delete", "--yes", name],
        )
    ]
    assert [one.returncode == 0 for one in done] == [True, True, True, False, True]
    assert not any("Traceback" in one.stderr for one in done)
    assert name in done[2].stdout
    assert of_bob(stage) == before
