"""What the tests of workers share."""

from __future__ import annotations

import pytest

from hereish.core import batch


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, chunks and shares of few lanes: every seam within few traces."""
    monkeypatch.setattr(batch, "LANES", 16)
    monkeypatch.setattr(batch, "POINTS", 60)
    monkeypatch.setattr(batch, "LEAST_LANES", 1)
