"""What an operator may say about destinations, and what is kept secret."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from sqlalchemy import select, update

from hereish.errors import ParameterError
from hereish.gateway.admin import accounts, destinations
from hereish.gateway.forwarding.forwarder import Forwarder
from hereish.gateway.forwarding.targets import parse_target
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.tables import destinations as rows
from tests.support.forwarding_stage import (
    PASSWORD,
    POLICY,
    Phone,
    logged,
    the_only,
)
from tests.support.receivers import (
    free_port,
    web_receiver,
)


@pytest.mark.usefixtures("quick")
def test_secrets_are_sealed_and_shown_and_logged_nowhere(
    ledger: Ledger, phone: Phone, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token, hook = "bearer-0815", "hook-4711"
    with web_receiver() as receiver:
        receiver.script = [500, "drop", 200, "redirect"]
        there = receiver.url.removeprefix("http://")
        closed = f"127.0.0.1:{free_port()}"
        for host in (there, closed):
            for scheme, kind in (("http", "owntracks"), ("https", "overland"), ("mqtt", "mqtt")):
                address = f"{scheme}://alice:{PASSWORD}@{host}/{hook}"
                destinations.add_destination(ledger, "alice", address, kind)
        destinations.add_destination(
            ledger, "alice", f"http://{there}/{hook}", "overland", bearer=token
        )
        phone.report(2)
        forwarder = Forwarder(ledger)
        for later_s in (0, 10):
            forwarder.run_once(time.time() + later_s)
        listing = repr(destinations.list_destinations(ledger, "alice"))
    with ledger.database.reading() as tx:
        troubles = repr(tx.execute(select(rows.c.trouble)).scalars().all())
    assert "answered" in troubles
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"owntracks" in files  # the search finds what is there
    for secret in (PASSWORD, token, hook):
        assert secret.encode() not in files
        assert secret not in listing + troubles + logged(caplog)
    assert f"http://{there}/…" in listing
    target = parse_target(f"https://a:{PASSWORD}@h/{hook}", "overland")
    assert PASSWORD not in repr(target)
    assert hook not in repr(target)


def test_no_place_is_logged_or_kept_as_trouble(
    ledger: Ledger, phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with web_receiver() as receiver:
        receiver.script = [500]
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        released = phone.report()
        Forwarder(ledger).run_once(time.time())
    assert "answered 500" in logged(caplog)
    words = logged(caplog) + repr(the_only(ledger))
    for number in (*released[0][1:], 39.98123456, 116.31654321):
        assert f"{number:.3f}" not in words


def test_a_sealed_address_that_was_moved_to_another_user_does_not_open(
    ledger: Ledger, phone: Phone
) -> None:
    with web_receiver() as receiver:
        destinations.add_destination(ledger, "alice", receiver.url, "owntracks")
        accounts.add_user(ledger, "bob", POLICY)
        stolen = destinations.add_destination(ledger, "bob", receiver.url, "owntracks")
        with ledger.database.writing() as tx:
            sealed = tx.execute(select(rows.c.sealed).where(rows.c.id == stolen)).scalar_one()
            tx.execute(update(rows).where(rows.c.id != stolen).values(sealed=sealed))
        phone.report()
        assert Forwarder(ledger).run_once(time.time()) == 0
        assert receiver.requests == []
        state = the_only(ledger)
        assert (state.tries, state.address) == (1, "…")
        assert "cannot be opened" in (state.trouble or "")


# What an operator may say


@pytest.mark.parametrize(
    ("address", "kind", "words"),
    [
        ("https://host/pub", "gpx", "format must be one of owntracks, overland, mqtt"),
        ("ftp://host/pub", "owntracks", "found the scheme 'ftp'"),
        ("host/pub", "overland", "found no scheme"),
        (f"alice:{PASSWORD}@host/pub", "owntracks", "found no scheme"),
        ("mqtt://host/topic", "owntracks", "http or https; found the scheme 'mqtt'"),
        ("https://host/topic", "mqtt", "mqtt or mqtts; found the scheme 'https'"),
        (f"https://alice:{PASSWORD}@/pub", "owntracks", "found no host"),
        (f"https://alice:{PASSWORD}@host:p/", "owntracks", "cannot be read"),
        (f"https://alice:{PASSWORD}@host:0/", "owntracks", "port 0"),
        ("https://[::1/", "overland", "cannot be read"),
        ("https://ho st/", "overland", "cannot be read|found no host"),
        ("mqtt://host", "mqtt", "found no topic"),
        ("mqtt://host/owntracks/%23", "mqtt", "found no topic after the host, or"),
        ("mqtt://host/owntracks/+/a", "mqtt", "found no topic after the host, or"),
        ("mqtt://host/owntracks#a", "mqtt", "found . or # in it"),
    ],
)
def test_a_bad_address_is_refused_in_words_that_do_not_repeat_it(
    ledger: Ledger, address: str, kind: str, words: str
) -> None:
    with pytest.raises(ParameterError, match=words) as refused:
        destinations.add_destination(ledger, "alice", address, kind)
    assert PASSWORD not in str(refused.value)
    assert destinations.list_destinations(ledger, "alice") == []


@pytest.mark.parametrize(
    ("address", "kind", "shown", "note"),
    [
        ("http://192.168.1.7:8083/pub?u=a", "owntracks", "http://192.168.1.7:8083/…", "encrypted"),
        ("http://localhost/", "overland", "http://localhost/", None),
        ("http://[::1]:80/x", "overland", "http://[::1]:80/…", None),
        ("https://a:b@host/pub", "owntracks", "https://host/…", "X-Limit-U"),
        ("https://a:b@host/", "overland", "https://host/", None),
        ("mqtt://broker/t", "mqtt", "mqtt://broker/…", "encrypted"),
        ("mqtts://a:b@broker/t", "mqtt", "mqtts://broker/…", None),
    ],
)
def test_a_listing_shows_where_to_and_what_to_mind(
    ledger: Ledger, address: str, kind: str, shown: str, note: str | None
) -> None:
    destinations.add_destination(ledger, "alice", address, kind)
    found = the_only(ledger)
    assert (found.format, found.address) == (kind, shown)
    assert (found.note is None) if note is None else (note in str(found.note))
