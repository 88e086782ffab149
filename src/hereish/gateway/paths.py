"""Where the ledger, its key and its high-water mark are stored."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError


@dataclass(frozen=True)
class GatewayPaths:
    """Three separate locations, so that a backup of one does not hold the others."""

    database: str  # a URL
    key_file: Path
    mark_file: Path


def resolve_paths(
    database: str | None = None, key_file: str | None = None, mark_file: str | None = None
) -> GatewayPaths:
    """The arguments, else the environment's settings, else this user's XDG folders."""
    database = database or os.environ.get("HEREISH_DATABASE")
    key_file = key_file or os.environ.get("HEREISH_KEY_FILE")
    mark_file = mark_file or os.environ.get("HEREISH_MARK")
    if database is None:
        folder = _xdg_folder("XDG_DATA_HOME", ".local/share")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = f"sqlite:///{folder / 'ledger.db'}"
    elif "://" not in database:  # people write the path of a file
        database = f"sqlite:///{Path(database).resolve()}"
    state_folder = _xdg_folder("XDG_STATE_HOME", ".local/state")
    return GatewayPaths(
        database,
        Path(key_file) if key_file else _xdg_folder("XDG_CONFIG_HOME", ".config") / "key",
        Path(mark_file) if mark_file else state_folder / f"mark-{_database_tag(database)}",
    )


def _xdg_folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "hereish"


def _database_tag(database: str) -> str:
    """A short name of a database that does not depend on its password."""
    try:
        url = make_url(database).render_as_string(hide_password=True)
    except ArgumentError:
        url = database
    return hashlib.sha256(url.encode()).hexdigest()[:16]
