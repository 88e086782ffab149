"""Which query a key is for: a file beside the key, so that a lost checkpoint is noticed.

Spark keeps the id of a query in its checkpoint. A query with another id has another state, in which
nobody has spent anything yet.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hereish.errors import ParameterError, StateError


def check_query_file(key_file: str | Path, query: str | None, buckets: int) -> None:
    """Raises unless the key is for this query, with so many buckets; the first one takes it."""
    if not query:
        raise ParameterError("Spark does not say which query this is; nothing was released")
    where, wanted = Path(f"{key_file}.stream"), f"query {query}, {buckets} buckets"
    written = _read(where)
    if written is None:
        _create(where, wanted)
        written = _read(where)
    if written == wanted:
        return
    if written is not None and written.startswith(f"query {query},"):
        raise StateError(
            f"the stream was begun with other buckets: {where} says {written!r}, found {buckets}. "
            "Users would move to buckets in which they have spent nothing; nothing was released"
        )
    raise StateError(
        f"the key is in use by another query: {where} says {written!r}, and this is {wanted!r}. If "
        "the checkpoint was lost, a new one would give every user a second budget in windows that "
        "have begun; nothing was released. Leave out (filter) all windows that the old query may "
        "have seen, or, if its points came in order, begin at the first row of the source, which "
        "releases the same again; and then remove that file. Streams of other people's points need "
        "a key of their own"
    )


def _read(where: Path) -> str | None:
    try:
        return where.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        raise StateError(f"{where} cannot be read; nothing was released") from None


def _create(where: Path, text: str) -> None:
    """Write a new file at once, so that nobody reads half of it; not if there is one already."""
    try:
        handle, draft = tempfile.mkstemp(dir=where.parent, prefix=where.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, where)
        finally:
            Path(draft).unlink()
    except FileExistsError:
        return  # another executor was quicker; what it wrote is compared
    except OSError as failure:
        raise ParameterError(
            f"{where} cannot be written ({failure.strerror}): put {text!r} into it yourself, on "
            "each machine that sanitises rows; nothing was released"
        ) from None
