"""What the tests of workers share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from hereish.core import batch


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, chunks and shares of few lanes: every seam within few traces."""
    monkeypatch.setattr(batch, "LANES", 16)
    monkeypatch.setattr(batch, "POINTS", 60)
    monkeypatch.setattr(batch, "LEAST_LANES", 1)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """An interrupt raises, also where the tests were started in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
