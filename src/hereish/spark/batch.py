"""A Spark data frame in, a sanitised one out; lazy, and without the RDD API, so Connect does too.

Rows are put together by user, sorted, and given to `hereish.traces.arrow` on the executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hereish.core.mechanism import PredictiveMechanism
from hereish.errors import ParameterError
from hereish.traces.arrow import ArrowColumns, sanitize_batches
from hereish.traces.arrow import canonical_users as canonical_array
from hereish.traces.budgets import EachTrace
from hereish.traces.faults import FAULT_REASONS, Fault
from hereish.traces.key_file import read_key_file

try:
    from pyspark.sql import functions as f
    from pyspark.sql import types as t
except ImportError as missing:
    raise ImportError("Spark needs more: pip install 'hereish[spark]'") from missing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_PARTITIONS = "spark.sql.shuffle.partitions"
# Texts in which every spelling is a canonical one: printable ASCII without spaces, and no number
# but a whole one without a sign, a fraction or an exponent. The executors check all others.
_NOT_WHOLE = (
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

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        draws = read_key_file(self.key_file)
        yield from sanitize_batches(
            batches, self.mechanism, draws, self.columns, every_s=self.every_s
        )


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
) -> DataFrame:
    """The rows that may be released: user, time, trace if named, lat, lon, kind, cost and `keep`.

    Nothing is computed until the result is used, and however often that is, the same comes out:
    noise is derived from the key in `key_file`, a path on every executor
    (`hereish.traces.key_file.write_key_file` makes one). Rows of one user at one time are taken
    by the public column `order`, else by a keyed hash. Columns of `keep` and `trace` are passed on
    as they are: that is your choice, and they may reveal a place. Points of a user are taken at
    least `every` so far apart, if it is given. A bad point fails the job, without being quoted, or
    is left out with `drop_bad`; `count_bad` counts them.

    Guarantee: as the mechanism's, for each user, over all of `df`.
    """
    columns = ArrowColumns(user, time, lat, lon, trace, order, tuple(keep))
    if key_file is None:
        raise ParameterError(
            "key_file is needed: Spark computes rows again, after a lost executor or for a second "
            "action, and fresh noise would then be a second release"
        )
    mechanism.fingerprint  # noqa: B018  # raises for parts that keyed draws cannot tell apart
    count = partitions if partitions is not None else _shuffle_partitions(df)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ParameterError(f"partitions must be a whole number from 1, found {partitions!r}")
    rows = _typed(df, columns)
    fault = _fault(rows, columns)
    if drop_bad:
        rows = rows.filter(fault.isNull())
    else:
        first = f.col(_quoted(columns.user))
        checked = f.when(fault.isNull(), first).otherwise(
            f.raise_error(f.concat(f.lit("a point cannot be used: "), fault)).cast(
                rows.schema[columns.user].dataType
            )
        )
        rows = rows.withColumn(columns.user, checked)
    each_trace = isinstance(mechanism.window, EachTrace)
    if each_trace and trace is None:
        raise ParameterError("a budget per trace needs the column of the traces")
    names = [user, *([str(trace)] if each_trace else []), time, *([order] if order else [])]
    owner = f.col(_quoted(user))
    placed = rows.repartition(count, owner).sortWithinPartitions(*map(_quoted, names))
    task = _Task(
        mechanism, columns, str(key_file), None if every is None else every.total_seconds()
    )
    whole = f.pmod(f.hash(owner), f.lit(count)) == f.spark_partition_id()
    broken = f.raise_error(f.lit(_NOT_WHOLE)).cast(rows.schema[user].dataType)
    guarded = placed.withColumn(user, f.when(whole, owner).otherwise(broken))
    return guarded.mapInArrow(task, _released_schema(rows.schema, columns))


def canonical_users(df: DataFrame, user: str) -> DataFrame:
    """The same rows with users in the one spelling that has a budget, as texts.

    "1", "1.0" and " 1" are one person. For ids that a program wrote this changes nothing and can be
    left out: executors refuse users that are spelt in another way than this.
    """
    import pandas as pd

    @f.pandas_udf(t.StringType())  # type: ignore[call-overload]  # the stubs know one form less
    def spelt(names: pd.Series) -> pd.Series:
        import pyarrow

        return canonical_array(pyarrow.array(names, from_pandas=True)).to_pandas()

    return df.withColumn(user, spelt(f.col(_quoted(user)).cast("string")))


def count_bad(df: DataFrame, *, user: str, time: str, lat: str, lon: str) -> dict[str, int]:
    """How many points `drop_bad` leaves out, by reason. Reads all rows once."""
    columns = ArrowColumns(user, time, lat, lon)
    rows = _typed(df, columns)
    fault = _fault(rows, columns).alias("fault")
    counted = rows.select(fault).filter("fault is not null").groupBy("fault").count().collect()
    return {row["fault"]: row["count"] for row in counted}


def _shuffle_partitions(df: DataFrame) -> int:
    return int(df.sparkSession.conf.get(_PARTITIONS) or 200)


def _quoted(name: str) -> str:
    """A column by its name, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _typed(df: DataFrame, columns: ArrowColumns) -> DataFrame:
    """The columns that are needed: users as texts or whole numbers, places as doubles.

    `try_cast`, since errors of casts quote the value; what cannot be read is missing, and so bad.
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
    places = {columns.lat, columns.lon}
    return df.select(
        *(
            f.expr(f"try_cast({_quoted(name)} AS DOUBLE)").alias(name)
            if name in places
            else f.col(_quoted(name))
            for name in columns.read
        )
    )


def _fault(rows: DataFrame, columns: ArrowColumns) -> Column:
    """Why a row cannot be used, or null."""
    user, time, lat, lon = (
        f.col(_quoted(name)) for name in (columns.user, columns.time, columns.lat, columns.lon)
    )
    first, last = (f.lit(year).cast("timestamp") for year in _YEARS)
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
        .when((time < first) | (time > last), reason[Fault.YEAR])
    )


def _released_schema(given: t.StructType, columns: ArrowColumns) -> t.StructType:
    """As `ArrowColumns.schema`, in Spark's words."""
    first = [columns.user, columns.time, *([] if columns.trace is None else [columns.trace])]
    passed = {name: t.StructField(name, given[name].dataType) for name in columns.public}
    fields: list[Any] = [
        *(passed[name] for name in first),
        t.StructField(columns.lat, t.DoubleType()),
        t.StructField(columns.lon, t.DoubleType()),
        t.StructField("kind", t.StringType()),
        t.StructField("cost", t.DoubleType()),
        *(passed[name] for name in columns.keep),
    ]
    return t.StructType(fields)
