"""Where the ledger, its key and its mark are, unless somebody says otherwise."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError


@dataclass(frozen=True)
class Places:
    """Three places, so that a backup of one does not hold the others."""

    database: str
    key_file: Path
    mark: Path


def places(
    database: str | None = None, key_file: str | None = None, mark: str | None = None
) -> Places:
    """What was said, or the environment, or the usual places of this user."""
    database = database or os.environ.get("HEREISH_DATABASE")
    key_file = key_file or os.environ.get("HEREISH_KEY_FILE")
    mark = mark or os.environ.get("HEREISH_MARK")
    if database is None:
        folder = _home("XDG_DATA_HOME", ".local/share")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = f"sqlite:///{folder / 'ledger.db'}"
    elif "://" not in database:  # the path of a file is what people write
        database = f"sqlite:///{Path(database).resolve()}"
    return Places(
        database,
        Path(key_file) if key_file else _home("XDG_CONFIG_HOME", ".config") / "key",
        Path(mark) if mark else _home("XDG_STATE_HOME", ".local/state") / f"mark-{_tag(database)}",
    )


def _home(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / usual) / "hereish"


def _tag(database: str) -> str:
    """Names a database without its password."""
    try:
        about = make_url(database).render_as_string(hide_password=True)
    except ArgumentError:
        about = database
    return hashlib.sha256(about.encode()).hexdigest()[:16]
