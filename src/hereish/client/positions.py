"""How far the gateway's ledger had come, as its responses say: kept, and sent back.

A gateway that was set back as a whole, its ledger, key and high-water mark together, cannot know
it. Its clients can: it recognises the positions that it gave, and stops when one is shown that it
does not have any more. A position is `era.number.sealed`; the highest is the one that matters.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from hereish.errors import ParameterError

POSITION = "Hereish-Ledger-Position"  # the header of requests and responses
_FORMAT = re.compile(r"([0-9]{1,12})\.([0-9]{1,18})\.[A-Za-z0-9_-]{1,200}", re.ASCII)
_MAX_BYTES = 1_000_000  # of a file of positions


class PositionStore:
    """The highest position of one gateway and token. Safe to share between threads."""

    def __init__(self, owner: str, file: str | os.PathLike[str] | None) -> None:
        """`owner` is kept as a digest only."""
        self._owner = hashlib.sha256(owner.encode()).hexdigest()[:16]
        self._file = None if file is None else Path(file)
        self._lock = threading.Lock()
        self._highest: str | None = None
        if self._file is not None:
            self._highest = self._read(self._file).get(self._owner)
            if not os.access(self._file.parent, os.W_OK):
                raise ParameterError("position_file must be in a folder that can be written")

    def header(self) -> dict[str, str]:
        """The header to send, if a position is known."""
        return {} if self._highest is None else {POSITION: self._highest}

    def keep(self, position: str | None) -> None:
        """Keep the position of a response, if it has one and it is the highest."""
        if position is None or _order(position) is None:
            return  # of an older gateway, or of something else, which its body will show
        with self._lock:
            if _is_later(self._highest, position):
                self._highest = position
                if self._file is not None:
                    self._write(self._file, position)

    def _write(self, path: Path, position: str) -> None:
        """Atomically. If it cannot be written it is still kept in memory."""
        with suppress(OSError, ParameterError):
            kept = self._read(path)
            if not _is_later(kept.get(self._owner), position):
                return  # another client wrote a higher one
            handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(kept | {self._owner: position}, file)
                Path(draft).replace(path)
            except BaseException:
                Path(draft).unlink(missing_ok=True)
                raise

    @staticmethod
    def _read(path: Path) -> dict[str, str]:
        kept: Any = None
        try:
            with path.open("rb") as file:
                kept = json.loads(file.read(_MAX_BYTES) or b"{}")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            pass
        if isinstance(kept, dict):
            texts = {owner: text for owner, text in kept.items() if isinstance(text, str)}
            if len(texts) == len(kept) and all(map(_order, texts.values())):
                return texts
        raise ParameterError(
            "position_file must be a file that an earlier client wrote, or none yet; found "
            "another, which was left as it is"
        )


def _order(position: str) -> tuple[int, int] | None:
    match = _FORMAT.fullmatch(position)
    return None if match is None else (int(match[1]), int(match[2]))


def _is_later(held: str | None, position: str) -> bool:
    """Whether to keep this one instead. Of two with the same numbers the later one knows more."""
    return (_order(held or "") or (-1, -1)) <= (_order(position) or (-1, -1))
