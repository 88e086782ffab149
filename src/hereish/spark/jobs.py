"""Spark jobs that share budgets with others: reserved before a place is read, paid before release.

Which users and windows there are is found from the columns of the users and the times alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

from hereish.core.mechanism import PredictiveMechanism
from hereish.errors import PointError
from hereish.spark.batch import in_known_years, quoted
from hereish.traces.job_budget import JobBudget, UserWindow, WindowCost, check_shared_budget

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions as f
    from pyspark.sql import types as t
except ImportError as missing:
    raise ImportError("Spark needs more: pip install 'hereish[spark]'") from missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GRANTS = "user STRING, window BIGINT, eps DOUBLE"
_WINDOWS_AT_ONCE = 20_000


@dataclass(frozen=True)
class _Windows:
    """On an executor: adds the number of the window, and the time in seconds."""

    mechanism: PredictiveMechanism

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            micros = pc.cast(batch.column("time"), pa.int64()).to_numpy()
            at_s = micros * 1e-6
            numbers = self.mechanism.window.index(at_s)
            window = np.zeros(len(at_s), dtype=np.int64) if numbers is None else numbers
            yield batch.append_column("window", pa.array(window)).append_column(
                "at_s", pa.array(at_s)
            )


def reserve(
    df: DataFrame, mechanism: PredictiveMechanism, job: JobBudget, *, user: str, time: str
) -> Iterator[pa.Table]:
    """Reserve what the job may spend for the users and windows of `df`; what it got, in pieces.

    Each piece has the columns user, window and eps: a data frame of all of them is what `sanitize`
    takes as `granted`. Rows without a user or a time that can be used are passed over.
    """
    check_shared_budget(mechanism)
    timely = df.filter(in_known_years(f.col(quoted(time)).cast("timestamp")))
    rows = _with_windows(timely, mechanism, user, time)
    found = rows.groupBy("user", "window").agg(f.min("at_s").alias("at_s"))
    windows = (UserWindow(*row) for row in found.toLocalIterator(prefetchPartitions=True))
    while some := list(islice(windows, _WINDOWS_AT_ONCE)):
        eps = job.reserve(some)
        yield pa.table(
            {
                "user": pa.array([one.user for one in some], pa.string()),
                "window": pa.array([one.window for one in some], pa.int64()),
                "eps": pa.array(eps, pa.float64()),
            }
        )


def reserve_all(
    df: DataFrame, mechanism: PredictiveMechanism, job: JobBudget, *, user: str, time: str
) -> DataFrame:
    """As `reserve`, all at once: what `sanitize` takes as `granted`. It is held by the driver."""
    pieces = reserve(df, mechanism, job, user=user, time=time)
    rows = [row for piece in pieces for row in grant_rows(piece)]
    return df.sparkSession.createDataFrame(rows, GRANTS)


def grant_rows(piece: pa.Table) -> list[tuple[Any, ...]]:
    """What was granted as rows of GRANTS."""
    return list(zip(*(column.to_pylist() for column in piece.columns), strict=True))


def settle(
    released: DataFrame,
    mechanism: PredictiveMechanism,
    job: JobBudget,
    *,
    user: str,
    time: str,
) -> None:
    """Pay for released rows that nobody has seen yet. Raises if they must not be published.

    They are read twice: let them be files, which do not change.
    """
    digest = _digest(released, user, time)
    rows = _with_windows(released, mechanism, user, time, "cost")
    spent = rows.groupBy("user", "window").agg(f.sum("cost"))  # exact: sums of whole quanta
    costs = (WindowCost(*row) for row in spent.toLocalIterator(prefetchPartitions=True))
    job.settle(costs, digest)


def _with_windows(
    df: DataFrame, mechanism: PredictiveMechanism, user: str, time: str, *more: str
) -> DataFrame:
    named: list[Any] = [
        f.col(quoted(user)).cast("string").alias("user"),
        f.col(quoted(time)).cast("timestamp").alias("time"),
    ]
    rows = df.select(*named, *(f.col(name).cast("double").alias(name) for name in more))
    known = rows.filter(f.col("user").isNotNull() & f.col("time").isNotNull())
    added = [t.StructField("window", t.LongType()), t.StructField("at_s", t.DoubleType())]
    schema = t.StructType([*known.schema.fields, *added])
    return known.mapInArrow(_Windows(mechanism), schema)


def _digest(released: DataFrame, user: str, time: str) -> bytes:
    """Of all rows in whatever order. It tells outputs apart; it does not stand up to forgery.

    Raises for a row that does not say who has spent what and when: it could not be paid for.
    """
    needed = (
        f.col(quoted(user)),
        f.col(quoted(time)).cast("timestamp"),
        f.col("cost").cast("double"),
    )
    unclear = f.count_if(reduce(or_, (one.isNull() for one in needed)))
    texts = (f.col(quoted(name)).cast("string") for name in sorted(released.columns))
    columns = [part for text in texts for part in (text.isNull(), text)]  # hashes pass nulls over
    sums = [f.sum(f.xxhash64(f.lit(salt), *columns).cast("decimal(38, 0)")) for salt in ("a", "b")]
    [(broken, *row)] = released.agg(unclear, f.count(f.lit(1)), *sums).collect()
    if broken:
        raise PointError(
            "the output does not read as it was written: rows have no user, time or cost; nothing "
            "was released"
        )
    return hashlib.sha256(repr(tuple(map(str, row))).encode()).digest()
