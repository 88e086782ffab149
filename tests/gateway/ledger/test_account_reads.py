"""A point of a phone reads its account once, under the lock, and a revoked token gets nowhere."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import event

from hereish.gateway.admin import accounts
from hereish.gateway.http.app import create_app
from hereish.gateway.http.protocols.owntracks import encrypt
from hereish.gateway.ledger.group_commit import GroupCommit
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix, ReportRequest
from hereish.gateway.ledger.queries import TokenRefusedError
from tests.support.ledgers import NOON_S
from tests.support.stage import HELSINKI, member, paths_in, shown

PASSPHRASE = "s3cret-of-alice"  # noqa: S105  # it opens nothing


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(paths_in(tmp_path))  # closed by the gateway, or by the test


def location(seconds: float) -> bytes:
    lat, lon = HELSINKI
    message = {"_type": "location", "lat": lat, "lon": lon, "tst": time.time() - 600 + seconds}
    return json.dumps(message).encode()


@asynccontextmanager
async def gateway(ledger: Ledger) -> AsyncIterator[httpx.AsyncClient]:
    """The application in this process; it closes the ledger."""
    app = create_app(ledger)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client,
    ):
        yield client


async def status(client: httpx.AsyncClient, token: str, body: bytes) -> int:
    return (await client.post("/owntracks", content=body, auth=("alice", token))).status_code


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_a_point_of_owntracks_reads_its_account_once(
    ledger: Ledger, passphrase: str | None
) -> None:
    member(ledger)
    token = accounts.new_token(ledger, "alice", "phone", passphrase=passphrase)
    reads: list[str] = []

    def note(*call: object) -> None:
        if "tokens.digest" in str(call[2]):
            reads.append(str(call[2]))

    event.listen(ledger.database.engine, "before_cursor_execute", note)
    per_request = []

    async def report() -> None:
        async with gateway(ledger) as client:
            for i in range(4):
                body = location(i)
                if passphrase is not None:
                    body = json.dumps(encrypt(body, passphrase)).encode()
                assert await status(client, token, body) == 200
                per_request.append(len(reads))
                reads.clear()

    asyncio.run(report())
    assert per_request == [2, 1, 1, 1]  # the first time nobody knows whether it has a passphrase


@pytest.mark.parametrize(
    "body",
    [
        b'{"_type": "location", "lat": 60.1, "lon": 24.9, "tst": 1762171200}',
        b'{"_type": "status"}',
        b"",
        b"{",
        json.dumps(encrypt(b"{}", PASSPHRASE)).encode(),
    ],
    ids=["location", "status", "empty", "no JSON", "encrypted"],
)
def test_a_revoked_token_is_refused_whatever_it_sends_next(ledger: Ledger, body: bytes) -> None:
    token = member(ledger)

    async def report() -> None:
        async with gateway(ledger) as client:
            assert await status(client, token, location(0)) == 200
            accounts.revoke_token(ledger, token)
            assert await status(client, token, body) == 401

    asyncio.run(report())


def test_an_identity_is_known_from_the_first_report_until_the_token_is_refused(
    ledger: Ledger,
) -> None:
    text = member(ledger)
    token = shown(text)
    commits = GroupCommit(ledger)

    async def report() -> None:
        await commits.report(ReportRequest(token, [Fix(*HELSINKI, NOON_S)]))

    assert commits.known_identity(token) is None
    commits.start()
    asyncio.run(report())
    assert commits.known_identity(token) == ledger.identify(token)
    accounts.revoke_token(ledger, text)
    with pytest.raises(TokenRefusedError):
        asyncio.run(report())
    assert commits.known_identity(token) is None
    commits.stop()
    ledger.close()
