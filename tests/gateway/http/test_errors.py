"""One table says which status an error has, and it is complete and documented."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hereish.errors import HereishError
from hereish.gateway.http.errors import (
    ERROR_STATUS,
    ROUTING_ERRORS,
    TITLES,
    V1_ERRORS,
    ErrorStatus,
    status_of,
)
from hereish.gateway.http.rate_limit import RateLimitError
from tests.support.paths import ROOT

# Asked in a process of its own: other tests import errors that the gateway never meets.
_LIST_ERRORS = """
import json
import hereish.gateway.http.app
from hereish.errors import HereishError

def below(cls):
    return [cls, *(one for sub in cls.__subclasses__() for one in below(sub))]

print(json.dumps(sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in below(HereishError))))
"""


def test_every_error_that_the_gateway_can_meet_has_its_status() -> None:
    done = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", _LIST_ERRORS], capture_output=True, text=True, check=True
    )
    table = {f"{cls.__module__}.{cls.__qualname__}" for cls in ERROR_STATUS}
    assert set(json.loads(done.stdout)) - table == set()


@pytest.mark.parametrize("status", sorted({*TITLES, *ROUTING_ERRORS}))
def test_every_status_is_documented(status: int) -> None:
    page = (ROOT / "docs" / "gateway.md").read_text("utf-8")
    assert status in V1_ERRORS or str(status) in page


def test_the_table_and_the_titles_have_the_same_statuses() -> None:
    assert {entry.status for entry in ERROR_STATUS.values()} | {*ROUTING_ERRORS} == {*TITLES}
    assert all(entry.title == TITLES[entry.status] for entry in ERROR_STATUS.values())


def test_an_error_without_an_entry_has_that_of_the_class_above_it() -> None:
    class SlowDownError(RateLimitError):
        pass

    assert status_of(SlowDownError(1.0)) == ErrorStatus(429)
    assert status_of(HereishError("secret")).status == 500
    assert status_of(KeyError("secret")).status == 500


def test_what_is_not_for_the_client_has_a_message_of_its_own() -> None:
    assert all(entry.message for entry in ERROR_STATUS.values() if entry.status >= 500)
