"""`hereish sanitize --engine spark`: Parquet and CSV that Spark reads and writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Kind
from hereish.errors import ParameterError, PointError
from hereish.spark.batch import (
    NOT_WHOLE,
    canonical_users,
    fault_reason,
    quoted,
    sanitize,
)
from hereish.traces.columns import Columns
from hereish.traces.faults import FAULT_REASONS
from hereish.traces.guarantee import describe_guarantee
from hereish.traces.key_file import read_key_file
from hereish.traces.summary import Summary

try:
    from pyspark.errors import PySparkException
    from pyspark.sql import Observation, SparkSession
    from pyspark.sql import functions as f
    from pyspark.sql import types as t
except ImportError as missing:
    raise ImportError("Spark needs more: pip install 'hereish[spark]'") from missing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FORMATS = ("parquet", "csv")
# Spark leaves out files whose names begin like this when it reads a folder.
METADATA_NAME = "_hereish.json"


def sanitize_files(
    inputs: Sequence[str],
    to: str,
    mechanism: PredictiveMechanism,
    *,
    columns: Columns,
    key_file: str,
    form: str | None = None,
    to_form: str | None = None,
    every_s: float | None = None,
    drop_bad: bool = False,
    master: str | None = None,
    quiet: bool = False,
) -> Summary:
    """Sanitise files on Spark into a folder of the same format, complete or not at all.

    Rows come out by user and time within each file. How far reports lie from the truth is not
    counted.

    Guarantee: as the mechanism's, for each user, over all files.
    """
    form, to_form = _format_of(inputs[0], form), _format_of(to, to_form)
    draws = read_key_file(key_file)  # before anything is started
    spark = _session(master, columns, quiet)
    df = _read(spark, inputs, form)
    names: dict[str, Any] = columns.find_all(df.columns, ("time", "lat", "lon"))
    if "user" not in names:
        raise ParameterError(
            "Spark shares the work out by user: give the column of the users with --user"
        )
    df = df.withColumn(names["time"], _as_time(df, names["time"]))
    if isinstance(df.schema[names["user"]].dataType, t.StringType):
        df = canonical_users(df, names["user"])
    read, written = Observation(), Observation()
    reasons = list(FAULT_REASONS.values())
    bad = [_count(fault_reason() == reason, f"bad_{i}") for i, reason in enumerate(reasons)]
    kinds = [_count(f.col("kind") == kind.value, kind.value) for kind in _KINDS]
    out = sanitize(
        df,
        mechanism,
        **names,
        key_file=key_file,
        keep=columns.keep,
        every=None if every_s is None else timedelta(seconds=every_s),
        drop_bad=drop_bad,
        observe=lambda rows: rows.observe(read, f.count(f.lit(1)).alias("points"), *bad),
    ).observe(written, *kinds)
    guarantee = describe_guarantee(mechanism, draws, columns, "public")
    _write(out, to, to_form)
    if Path(to).is_dir():
        about = json.dumps(guarantee.as_dict(), indent=2) + "\n"
        (Path(to) / METADATA_NAME).write_text(about, encoding="utf-8")
    counts, released = read.get, written.get
    dropped = {r: counts[f"bad_{i}"] for i, r in enumerate(reasons) if counts[f"bad_{i}"]}
    usable = counts["points"] - sum(dropped.values())
    owners = [names["user"], *([names["trace"]] if "trace" in names else [])]
    return Summary(
        files=len(df.inputFiles()),
        users=df.select(names["user"]).distinct().count(),
        traces=df.select(*owners).distinct().count(),
        points=counts["points"],
        bad=dropped,
        **{kind.value: released[kind.value] for kind in _KINDS},
        refused=usable - sum(released.values()),
        guarantee=guarantee.statement,
        private=guarantee.private,
        prior=guarantee.prior,
    )


_KINDS = (Kind.HARD, Kind.EASY, Kind.UNTESTED)


def _count(condition: Column, name: str) -> Column:
    return f.count(f.when(condition, 1)).alias(name)


def _format_of(name: str, given: str | None) -> str:
    form = given or Path(name.rstrip("/")).suffix.removeprefix(".")
    if form not in FORMATS:
        raise ParameterError(
            f"Spark reads and writes {' and '.join(FORMATS)}, found {name}: give --format and --to "
            "where names do not tell, or leave out --engine for other formats"
        )
    return form


def _session(master: str | None, columns: Columns, quiet: bool) -> SparkSession:
    builder = SparkSession.builder.appName("hereish sanitize")
    if master is not None:
        builder = builder.master(master)
    builder = builder.config("spark.ui.showConsoleProgress", str(not quiet).lower())
    session: SparkSession = builder.getOrCreate()
    # Of times that do not say their zone.
    zone = "UTC" if columns.zone is None else columns.zone.key
    session.conf.set("spark.sql.session.timeZone", zone)
    return session


def _read(spark: SparkSession, inputs: Sequence[str], form: str) -> DataFrame:
    failure: str | None = None
    try:
        if form == "csv":
            # By the names in each header; within a folder Spark checks that they are the same.
            frames = [spark.read.csv(one, header=True, enforceSchema=False) for one in inputs]
            return reduce(lambda one, other: one.unionByName(other), frames)
        return spark.read.parquet(*inputs)
    except PySparkException as broken:
        failure = _condition(broken)
    raise PointError(f"{', '.join(inputs)}: Spark cannot read it ({failure})")


def _as_time(df: DataFrame, name: str) -> Column:
    """Times with a zone; texts that cannot be read are missing, and so bad."""
    column, kind = f.col(quoted(name)), df.schema[name].dataType
    if isinstance(kind, t.TimestampType):
        return column
    if isinstance(kind, t.TimestampNTZType):
        return column.cast("timestamp")
    if isinstance(kind, t.StringType):
        return f.try_to_timestamp(column)
    raise ParameterError(
        f"column {name!r} must hold times, or texts of times, found {kind.simpleString()}"
    )


def _write(out: DataFrame, to: str, form: str) -> None:
    """Errors of Spark hold plans and rows: only their name, or our own text, is passed on."""
    failure: str | None = None
    try:
        if form == "csv":
            out.write.csv(to, header=True)
        else:
            out.write.parquet(to)
        return
    except Exception as broken:  # noqa: BLE001  # of Spark, or of Java below it
        failure = _our_text(broken)
    raise PointError(failure)


def _condition(broken: Exception) -> str | None:
    """The name that Spark has for an error; its text may quote rows."""
    if not isinstance(broken, PySparkException):
        return None
    if hasattr(broken, "getCondition"):
        return broken.getCondition()
    return broken.getErrorClass()  # Spark 3.5


def _our_text(broken: Exception) -> str:
    condition = _condition(broken)
    if condition == "PATH_ALREADY_EXISTS":
        return "the output is there already: choose another name, or remove it"
    text = str(broken)
    if "CSV header does not conform" in text:
        return "CSV files of one folder must have the same header; nothing was released"
    if NOT_WHOLE in text:
        return NOT_WHOLE
    for reason in FAULT_REASONS.values():
        if reason in text:
            return (
                f"a point cannot be used: {reason}; nothing was released (--drop-bad leaves such "
                "points out)"
            )
    found = [line for line in text.splitlines() if line.startswith("hereish.errors.")]
    if found:
        return found[-1].partition(": ")[2]
    return f"Spark failed ({condition or type(broken).__name__}); see its logs"
