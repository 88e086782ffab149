"""A table function for SQL: `SELECT * FROM hereish_sanitize(TABLE(…) PARTITION BY … )`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hereish.core.mechanism import PredictiveMechanism
from hereish.errors import ParameterError, PointError
from hereish.traces.arrow import BatchSanitizer, check_keyed
from hereish.traces.arrow_rows import ArrowColumns
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.key_file import read_key_file

try:
    from pyspark.sql import SparkSession
except ImportError as missing:
    raise ImportError("Spark needs more: pip install 'hereish[spark]'") from missing

ROWS_OF_USER = "rows_of_user"


def register(
    spark: SparkSession,
    mechanism: PredictiveMechanism,
    *,
    key_file: str | Path,
    name: str = "hereish_sanitize",
    user: str = "user",
    time: str = "time",
    lat: str = "lat",
    lon: str = "lon",
    user_type: str = "string",
    keep: Mapping[str, str] | None = None,
) -> None:
    """Make a table function of this name for SQL, on Spark from 4.1 on. Call it like this:

        SELECT * FROM hereish_sanitize(
            TABLE(SELECT *, count(*) OVER (PARTITION BY user) AS rows_of_user FROM points)
            PARTITION BY pmod(hash(user), 64) ORDER BY (user, time))

    The number of each user's rows is what the function counts against: a query that takes a user
    apart would give a budget to each part, and fails instead. `user_type` and the types of `keep`
    (names and types, such as {"note": "string"}) are SQL's. Noise comes from the key, as in
    `hereish.spark.sanitize`, and the same rows give the same bits.

    Guarantee: as the mechanism's, for each user, over all of the table.
    """
    try:
        from pyspark.sql.functions import arrow_udtf
    except ImportError:
        raise ParameterError("SQL needs Spark 4.1 or newer; use hereish.spark.sanitize") from None
    if key_file is None:
        raise ParameterError(
            "key_file is needed: Spark computes rows again, after a lost executor or for a second "
            "query, and fresh noise would then be a second release"
        )
    types = {user: user_type, time: "timestamp", lat: "double", lon: "double", **(keep or {})}
    columns = ArrowColumns(user, time, lat, lon, keep=tuple(keep or ()))
    check_keyed(mechanism, columns)
    types |= {"kind": "string", "cost": "double"}
    returns = ", ".join(f"`{one}` {types[one]}" for one in columns.released)
    where = str(key_file)

    class Sanitize:
        """One instance for each partition of the query."""

        def __init__(self) -> None:
            self._sanitizer = BatchSanitizer(mechanism, read_key_file(where), columns)
            self._users = _CountedUsers(user)

        def eval(self, rows: pa.RecordBatch) -> Iterator[Any]:
            self._users.add(rows)
            for batch in self._sanitizer.push(rows):
                yield pa.Table.from_batches([batch])

        def terminate(self) -> Iterator[Any]:
            self._users.finish()
            for batch in self._sanitizer.finish():
                yield pa.Table.from_batches([batch])

    # By their values: how this module spells types is nothing to Spark.
    Sanitize.eval.__annotations__.update(rows=pa.RecordBatch)
    function: Any = arrow_udtf(Sanitize, returnType=returns)
    spark.udtf.register(name, function)


class _CountedUsers:
    """Whether all rows of each user came here; they come sorted by user."""

    def __init__(self, user: str) -> None:
        self._user = user
        self._last: Any = None
        self._missing = 0  # rows of the last user that have not come yet

    def add(self, rows: pa.RecordBatch) -> None:
        if rows.schema.get_field_index(ROWS_OF_USER) < 0:
            raise PointError(
                f"there is no column {ROWS_OF_USER}: the query must have count(*) OVER (PARTITION "
                f"BY {self._user}) AS {ROWS_OF_USER}; nothing was released"
            )
        if not rows.num_rows:
            return
        names, counted = rows.column(self._user), rows.column(ROWS_OF_USER)
        if names.null_count:
            reason = FAULT_REASONS[Fault.USER]
            raise PointError(f"a point cannot be used: {reason}; nothing was released")
        if not pa.types.is_integer(counted.type) or counted.null_count:
            raise PointError(f"{ROWS_OF_USER} must be whole numbers; nothing was released")
        counts = counted.to_numpy(zero_copy_only=False)
        changes = pa.compute.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
        begins = np.append(0, np.flatnonzero(changes) + 1)
        for first, end in zip(begins, np.append(begins[1:], len(names)), strict=True):
            name = names[int(first)].as_py()
            if self._last is None or name != self._last:
                self.finish()
                self._last, self._missing = name, int(counts[first])
            self._missing -= int(end - first)

    def finish(self) -> None:
        if self._missing:
            raise PointError(
                "rows of a user are in several partitions, which would give a budget to each: use "
                f"PARTITION BY pmod(hash({self._user}), 64) ORDER BY ({self._user}, time); nothing "
                "was released"
            )
