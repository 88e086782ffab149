"""A Spark data frame in, a sanitised one out; lazy, and without the RDD API, so Connect does too.

Rows are put together by user, sorted, and given to `hereish.traces.arrow` on the executors.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from hereish.core.mechanism import PredictiveMechanism
from hereish.errors import ParameterError
from hereish.traces.arrow import ArrowColumns, ArrowCounts, check_keyed, sanitize_batches
from hereish.traces.arrow import canonical_users as canonical_array
from hereish.traces.budgets import EachTrace
from hereish.traces.displacement import Displacements
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.job_budget import check_shared_budget
from hereish.traces.key_file import read_key_file, seal

try:
    import pyarrow as pa
    from pyspark.sql import functions as f
    from pyspark.sql import types as t
except ImportError as missing:
    raise ImportError("Spark needs more: pip install 'hereish[spark]'") from missing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The kind of a row that says what became of a partition, and the beginning of what it says.
COUNTS = "counts:"
_PARTITIONS = "spark.sql.shuffle.partitions"
NOT_WHOLE = (
    "rows of one user are in several partitions, which would give a budget to each: something "
    "between the shuffle and here has moved rows; nothing was released"
)
_YEARS = ("1900-01-01 00:00:00+00:00", "2400-01-01 00:00:00+00:00")


@dataclass(frozen=True)
class _Task:
    """What an executor does with a partition. It holds the path of the key, and not the key."""

    mechanism: PredictiveMechanism
    columns: ArrowColumns
    key_file: str
    every_s: float | None
    counted: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = iter(batches)
        first = next(rows, None)
        if first is None:
            return
        draws = read_key_file(self.key_file)
        counts = ArrowCounts(displacements=Displacements() if self.counted else None)
        yield from sanitize_batches(
            chain([first], rows),
            self.mechanism,
            draws,
            self.columns,
            every_s=self.every_s,
            counts=counts,
        )
        if counts.displacements is not None:
            sealed = seal(self.key_file, counts.displacements.to_bytes())
            yield _counts_row(self.columns.schema(first.schema), counts.thinned, sealed)


def _counts_row(schema: pa.Schema, thinned: int, sealed: bytes) -> pa.RecordBatch:
    values = {"kind": COUNTS + base64.b64encode(sealed).decode(), "cost": float(thinned)}
    return pa.RecordBatch.from_arrays(
        [pa.array([values.get(field.name)], field.type) for field in schema], schema=schema
    )


@dataclass(frozen=True)
class _Spelling:
    """Writes users in their canonical spelling."""

    user: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            at = batch.schema.get_field_index(self.user)
            yield batch.set_column(at, self.user, canonical_array(batch.column(at)))


def sanitize(
    df: DataFrame,
    mechanism: PredictiveMechanism,
    *,
    user: str,
    time: str,
    lat: str,
    lon: str,
    trace: str | None = None,
    key_file: str | Path,
    order: str | None = None,
    partitions: int | None = None,
    keep: Sequence[str] = (),
    every: timedelta | None = None,
    drop_bad: bool = False,
    granted: DataFrame | None = None,
) -> DataFrame:
    """The rows that may be released: user, time, trace if named, lat, lon, kind, cost and `keep`.

    Nothing is computed until the result is used, and however often that is, the same comes out:
    noise is derived from the key in `key_file`, a path on every executor
    (`hereish.traces.key_file.write_key_file` makes one). Rows of one user at one time are taken
    by the public column `order`, else by a keyed hash. Columns of `keep` and `trace` are passed on
    as they are: that is your choice, and they may reveal a place. Points of a user are taken at
    least `every` so far apart, if it is given. A bad point fails the job, without being quoted, or
    is left out with `drop_bad`; `count_bad` counts them. `granted` says what may be spent of which
    users' windows (columns user, window and eps): of others, nothing.

    Guarantee: as the mechanism's, for each user, over all of `df`.
    """
    columns = ArrowColumns(user, time, lat, lon, trace, order, tuple(keep))
    every_s = None if every is None else every.total_seconds()
    return sanitize_columns(
        df,
        mechanism,
        columns,
        key_file=key_file,
        partitions=partitions,
        every_s=every_s,
        drop_bad=drop_bad,
        granted=granted,
    )


def sanitize_columns(
    df: DataFrame,
    mechanism: PredictiveMechanism,
    columns: ArrowColumns,
    *,
    key_file: str | Path,
    partitions: int | None = None,
    every_s: float | None = None,
    drop_bad: bool = False,
    granted: DataFrame | None = None,
    observe: Callable[[DataFrame], DataFrame] | None = None,
    observe_released: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """As `sanitize`. `observe` is given the true rows, to count them on the way.

    `observe_released` is given the released ones, and one more per partition without a user: its
    kind is COUNTS followed by the displacements, sealed with the key, since they are computed from
    true places and go to the driver; its cost is how many rows came too soon after another.
    """
    if key_file is None:
        raise ParameterError(
            "key_file is needed: Spark computes rows again, after a lost executor or for a second "
            "action, and fresh noise would then be a second release"
        )
    check_keyed(mechanism, columns)
    if df.isStreaming:
        raise ParameterError("a stream is sanitised with hereish.spark.sanitize_stream")
    count = partitions if partitions is not None else _shuffle_partitions(df)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ParameterError(f"partitions must be a whole number from 1, found {partitions!r}")
    rows, inner = typed(df, columns)
    rows = usable(rows if observe is None else observe(rows), drop_bad)
    if granted is not None:
        check_shared_budget(mechanism)
        rows, inner = _with_grants(rows, granted), replace(inner, granted="granted")
    by = ["user", "trace", "time"] if isinstance(mechanism.window, EachTrace) else ["user", "time"]
    by += [] if inner.order is None else [inner.order]
    placed = rows.repartition(count, _place(f.col("user"))).sortWithinPartitions(*by)
    counted = observe_released is not None
    task = _Task(mechanism, inner, str(key_file), every_s, counted)
    out = _guarded(placed, count).mapInArrow(task, released_schema(rows.schema, inner))
    if observe_released is not None:
        out = observe_released(out).filter(~f.col("kind").startswith(COUNTS))
    return out.toDF(*columns.released)


def _with_grants(rows: DataFrame, granted: DataFrame) -> DataFrame:
    """The rows, each with all that was granted to its user."""
    window, eps = f.col("window").cast("long"), f.col("eps").cast("double")
    each = granted.groupBy(f.col("user").cast("string").alias("granted_user")).agg(
        f.collect_list(f.struct(window.alias("window"), eps.alias("eps"))).alias("granted")
    )
    same = f.col("user").cast("string") == f.col("granted_user")
    return rows.join(each, same, "left").drop("granted_user")


def _place(user: Column) -> Column:
    """By which users are shared out. Not by the user as it is: rows that a join or a group has put
    together by that already would not be moved again, and adaptive execution may take those apart.
    """
    return f.xxhash64(f.lit("hereish"), user)


def _guarded(placed: DataFrame, count: int) -> DataFrame:
    """The rows, with a check on the executor that each is in the partition of its user.

    The number of a partition is that of the shuffle, whatever is done with it afterwards. If
    something splits partitions, those after it have other numbers than their users'.
    """
    whole = f.pmod(f.hash(_place(f.col("user"))), f.lit(count)) == f.spark_partition_id()
    broken = f.raise_error(f.lit(NOT_WHOLE)).cast(placed.schema["user"].dataType)
    return placed.withColumn("user", f.when(whole, f.col("user")).otherwise(broken))


def canonical_users(df: DataFrame, user: str) -> DataFrame:
    """The same rows with users in the one spelling that has a budget, as texts.

    "1", "1.0" and " 1" are one person. For ids that a program wrote this changes nothing and can be
    left out: executors refuse users that are spelt in another way than this.
    """
    fields = [t.StructField(user, t.StringType()) if one.name == user else one for one in df.schema]
    texts = df.withColumn(user, f.col(quoted(user)).cast("string"))
    return texts.mapInArrow(_Spelling(user), t.StructType(fields))


def count_bad(df: DataFrame, *, user: str, time: str, lat: str, lon: str) -> dict[str, int]:
    """How many points `drop_bad` leaves out, by reason. Reads all rows once."""
    rows, _ = typed(df, ArrowColumns(user, time, lat, lon))
    reasons = rows.select(fault_reason().alias("fault")).filter("fault is not null")
    return {row["fault"]: row["count"] for row in reasons.groupBy("fault").count().collect()}


def _shuffle_partitions(df: DataFrame) -> int:
    return int(df.sparkSession.conf.get(_PARTITIONS) or 200)


def quoted(name: str) -> str:
    """A column by its name, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def typed(df: DataFrame, columns: ArrowColumns) -> tuple[DataFrame, ArrowColumns]:
    """The columns that are needed under plain names, and what those are.

    Spark takes dots and backticks in a name for something else. Places are read with `try_cast`,
    since errors of casts quote the value; what cannot be read is missing, and so bad.
    """
    known = df.schema
    for name in columns.read:
        if name not in known.names:
            found = ", ".join(map(repr, known.names))
            raise ParameterError(f"there is no column {name!r}; found {found}")
    if not isinstance(known[columns.time].dataType, t.TimestampType):
        raise ParameterError(
            f"column {columns.time!r} must hold timestamps with a time zone, found "
            f"{known[columns.time].dataType.simpleString()}"
        )
    owner = known[columns.user].dataType
    if not isinstance(owner, (t.StringType, t.IntegralType)):
        raise ParameterError(
            f"column {columns.user!r} must hold texts or whole numbers, found "
            f"{owner.simpleString()}"
        )
    plain = {columns.user: "user", columns.time: "time"}
    if columns.trace is not None:
        plain[columns.trace] = "trace"
    plain |= {name: f"kept_{i}" for i, name in enumerate(columns.keep)}
    if columns.order is not None:
        plain.setdefault(columns.order, "order")
    selected = [f.col(quoted(given)).alias(name) for given, name in plain.items()]
    places = {"lat": columns.lat, "lon": columns.lon}
    for name, given in places.items():
        selected.append(f.expr(f"try_cast({quoted(given)} AS DOUBLE)").alias(name))
    inner = ArrowColumns(
        *("user", "time", "lat", "lon"),
        trace=None if columns.trace is None else "trace",
        order=None if columns.order is None else plain[columns.order],
        keep=tuple(plain[name] for name in columns.keep),
    )
    return df.select(*selected), inner


def usable(rows: DataFrame, drop_bad: bool) -> DataFrame:
    """The rows with plain names that can be used; any other fails the job, or is left out."""
    fault, user = fault_reason(), f.col("user")
    if drop_bad:
        return rows.filter(fault.isNull())
    refused = f.raise_error(f.concat(f.lit("a point cannot be used: "), fault))
    owner = f.when(fault.isNull(), user).otherwise(refused.cast(rows.schema["user"].dataType))
    return rows.withColumn("user", owner)


def fault_reason() -> Column:
    """Why a row with plain names cannot be used, or null."""
    user, time, lat, lon = map(f.col, ("user", "time", "lat", "lon"))
    swapped = (f.abs(lat) <= 180) & (f.abs(lon) <= 90)
    reason = {code: f.lit(text) for code, text in FAULT_REASONS.items()}
    return (
        f.when(user.isNull(), reason[Fault.USER])
        .when(time.isNull(), reason[Fault.TIME])
        .when(lat.isNull() | f.isnan(lat), reason[Fault.LAT])
        .when(lon.isNull() | f.isnan(lon), reason[Fault.LON])
        .when((f.abs(lat) > 90) & swapped, reason[Fault.SWAPPED])
        .when(f.abs(lat) > 90, reason[Fault.LAT_RANGE])
        .when(f.abs(lon) > 180, reason[Fault.LON_RANGE])
        .when(~in_known_years(time), reason[Fault.YEAR])
    )


def in_known_years(time: Column) -> Column:
    """Whether a time is of the years in which clocks are right."""
    first, last = (f.lit(year).cast("timestamp") for year in _YEARS)
    return (time >= first) & (time <= last)


def released_schema(given: t.StructType, columns: ArrowColumns) -> t.StructType:
    """As `ArrowColumns.schema`, in Spark's words."""
    made = {
        columns.lat: t.DoubleType(),
        columns.lon: t.DoubleType(),
        "kind": t.StringType(),
        "cost": t.DoubleType(),
    }
    types = {
        name: made[name] if name in made else given[name].dataType for name in columns.released
    }
    return t.StructType([t.StructField(name, kind) for name, kind in types.items()])
