"""Released files as an observer reads them: by person, with what they say of themselves.

A file of `hereish sanitize`, whatever its format, or the history of a gateway's ledger as its API
returns it: a JSON object with `releases`, or a list of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from hereish.attack.replay import Releases
from hereish.core.types import Floats, Kind
from hereish.errors import ParameterError
from hereish.traces.columns import Columns
from hereish.traces.files import load_rows, read_guarantee
from hereish.traces.guarantee import GuaranteeMetadata
from hereish.traces.names import canonical_name
from hereish.traces.reading import UsersFrom
from hereish.traces.table import RowBatch
from hereish.traces.validate import DropBad


@dataclass(frozen=True, eq=False)
class ReleasedFile:
    """The releases of each person, and of each of their traces apart where those have budgets."""

    people: dict[str, list[Releases]]
    guarantee: GuaranteeMetadata | None
    ledger: bool = False  # sessions, whose windows go on from one another

    @property
    def checked(self) -> bool:
        """Whether costs tell if the settings with which it is looked at are those it has."""
        return all(part.cost is not None for parts in self.people.values() for part in parts)


def read_released(
    name: str,
    columns: Callable[[str | None], Columns],
    form: str | None = None,
    users_from: UsersFrom | None = None,
    *,
    by_trace: bool | None = None,
) -> ReleasedFile:
    """The releases of a file. `by_trace`: each trace has a budget of its own; None: as it says.

    `columns` is asked with the time zone that the file says it has, if any: times of T-Drive are
    those of its clock.
    """
    history = _read_history(name) if form is None else None
    if history is not None:
        return ReleasedFile({"": [history]}, None, ledger=True)
    guarantee = read_guarantee(name, form)
    if by_trace is None:
        by_trace = guarantee is not None and guarantee.window == "trace"
    rows = _load(
        name, columns(None if guarantee is None else guarantee.time_zone), form, users_from
    )
    kinds, costs = _kinds(rows), _costs(rows)
    people: dict[str, list[Releases]] = {}
    for user, parts in _by_user(rows, by_trace).items():
        people[user] = [
            Releases(
                rows.at_us[part] * 1e-6,
                np.column_stack([rows.lat[part], rows.lon[part]]),
                None if kinds is None else [kinds[i] for i in part.tolist()],
                None if costs is None else costs[part],
            )
            for part in parts
        ]
    return ReleasedFile(people, guarantee)


def read_truth(
    name: str, columns: Columns, form: str | None, users_from: UsersFrom | None, drop_bad: DropBad
) -> dict[str, tuple[Floats, Floats]]:
    """Times and places of each person. Secret."""
    rows = load_rows([name], columns, form, drop_bad, users_from)
    return {
        user: (
            rows.at_us[part] * 1e-6,
            np.column_stack([rows.lat[part], rows.lon[part]]),
        )
        for user, (part,) in _by_user(rows, by_trace=False).items()
    }


def _load(name: str, columns: Columns, form: str | None, users_from: UsersFrom | None) -> RowBatch:
    """With kinds and costs if the file has them."""
    try:
        with_kinds = replace(columns, keep=("kind", "cost"))
        return load_rows([name], with_kinds, form, False, users_from, in_order=False)
    except ParameterError:
        return load_rows([name], columns, form, False, users_from, in_order=False)


def _by_user(rows: RowBatch, by_trace: bool) -> dict[str, list[Any]]:
    """The rows of each user in the order of their times; those of each trace apart if asked."""
    users = rows.users()
    names = [canonical_name(name) for name in users.names]
    trace = rows.trace_codes() if by_trace else np.zeros(len(rows), dtype=np.int64)
    order = np.lexsort((rows.at_us, trace))
    people: dict[str, dict[int, list[int]]] = {}
    for i in order.tolist():
        own = people.setdefault(names[users.codes[i]], {})
        own.setdefault(int(trace[i]), []).append(i)
    return {
        user: [np.array(part, dtype=np.int64) for part in parts.values()]
        for user, parts in people.items()
    }


def _kinds(rows: RowBatch) -> list[Kind] | None:
    column = rows.kept.get("kind")
    if column is None:
        return None
    known = {kind.value: kind for kind in Kind}
    kinds = [known.get(str(name)) for name in column.tolist()]
    return None if any(kind is None for kind in kinds) else [kind for kind in kinds if kind]


def _costs(rows: RowBatch) -> Floats | None:
    column = rows.kept.get("cost")
    if column is None:
        return None
    try:
        costs = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return costs if np.isfinite(costs).all() else None


def _read_history(name: str) -> Releases | None:
    """The history of a ledger; None if the file is something else."""
    path = Path(name)
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        read = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):  # said where other files are read
        return None
    items = read.get("releases") if isinstance(read, dict) else read
    if not isinstance(items, list) or not items:
        return None
    if not all(isinstance(item, dict) and "lat" in item and "at" in item for item in items):
        return None
    return _releases(items)


def _releases(items: Sequence[dict[str, Any]]) -> Releases:
    try:
        rows = sorted(
            (
                _seconds(item["at"]),
                float(item["lat"]),
                float(item["lon"]),
                Kind(item["kind"]),
                float(item["cost"]),
            )
            for item in items
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ParameterError(
            "a history of a ledger has releases with lat, lon, at, kind and cost each, as "
            "GET /v1/history returns them; found others"
        ) from None
    at_s, lat, lon, kinds, costs = zip(*rows, strict=True)
    places = np.column_stack([lat, lon])
    if not all(math.isfinite(number) for number in (*at_s, *lat, *lon, *costs)):
        raise ParameterError("a release of the history has a number that is not finite")
    if (np.abs(places) > [90.0, 180.0]).any():
        raise ParameterError("a release of the history is not on the globe: lat and lon in degrees")
    return Releases(np.array(at_s), places, list(kinds), np.array(costs))


def _seconds(text: str) -> float:
    at = datetime.fromisoformat(text)
    if at.utcoffset() is None:  # of this machine's clock, otherwise
        raise ValueError
    return at.timestamp()
