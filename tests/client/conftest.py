"""Fixtures of the client's tests."""

from __future__ import annotations

import pytest

from tests.support.client_driver import Driver


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Driver:
    return Driver(waits=request.param == "sync")
