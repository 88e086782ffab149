from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.terminal import Terminal


@pytest.fixture
def hereish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A shell with a ledger of its own."""
    monkeypatch.delenv("HEREISH_KEY", raising=False)
    monkeypatch.setenv("HEREISH_DATABASE", str(tmp_path / "ledger.db"))
    monkeypatch.setenv("HEREISH_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("HEREISH_MARK", str(tmp_path / "mark"))
    return Terminal(monkeypatch)
