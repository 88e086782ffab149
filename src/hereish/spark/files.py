"""`hereish sanitize --engine spark`: Parquet and CSV that Spark reads and writes."""

from __future__ import annotations

import base64
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hereish.core.mechanism import PredictiveMechanism
from hereish.core.types import Kind
from hereish.errors import HereishError, ParameterError, PointError
from hereish.spark.batch import (
    COUNTS,
    NOT_WHOLE,
    canonical_users,
    count_bad,
    fault_reason,
    quoted,
    sanitize_columns,
    typed,
)
from hereish.spark.jobs import reserve, settle
from hereish.spark.staging import StagedOutput
from hereish.traces.arrow_rows import ArrowColumns
from hereish.traces.budgets import EachTrace
from hereish.traces.columns import Columns
from hereish.traces.displacement import Displacements
from hereish.traces.faults import FAULT_REASONS
from hereish.traces.guarantee import describe_guarantee
from hereish.traces.job_budget import JobBudget
from hereish.traces.key_file import read_key_file, unseal
from hereish.traces.summary import Summary
from hereish.traces.validate import DropBad, Validator

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
_PARTITIONS = "spark.sql.shuffle.partitions"
_SPARKS_DEFAULT = "200"
_PARTITIONS_PER_CORE = 8
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
    drop_bad: DropBad = False,
    master: str | None = None,
    job: JobBudget | None = None,
    quiet: bool = False,
) -> Summary:
    """Sanitise files on Spark into a folder of the same format, complete or not at all.

    Rows come out by user and time within each file. A `job` shares its budgets with others: what
    may be spent is reserved there before a place is read, and paid before the output appears.

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
    names = _without_trace_names(names, columns, mechanism)
    df = df.withColumn(names["time"], _as_time(df, names["time"]))
    if isinstance(df.schema[names["user"]].dataType, t.StringType):
        df = canonical_users(df, names["user"])
    given = ArrowColumns(**names, keep=columns.keep)
    typed(df, given)  # refuses what cannot be used, before anything is reserved
    if drop_bad is True:
        with _silent_errors():
            _check_losses(df, names)
    owners = {"user": names["user"], "time": names["time"]}
    with nullcontext() if job is None else StagedOutput(spark, to) as staging:
        granted = None
        if job is not None and staging is not None:
            with _silent_errors():
                granted = staging.keep_grants(reserve(df, mechanism, job, **owners))
        counted = _Counted(key_file)
        out = sanitize_columns(
            df,
            mechanism,
            given,
            key_file=key_file,
            every_s=every_s,
            drop_bad=drop_bad is not False,
            granted=granted,
            observe=counted.observe_read,
            observe_released=counted.observe_released,
        )
        _write(out, to if staging is None else staging.rows, to_form)
        if job is not None and staging is not None:
            with _silent_errors():
                written = _read(spark, [staging.rows], to_form, multi_line=True)
                settle(written, mechanism, job, **owners)
                staging.publish()
    guarantee = describe_guarantee(mechanism, draws, columns, "public", every_s, job is not None)
    if Path(to).is_dir():
        about = json.dumps(guarantee.as_dict(), indent=2) + "\n"
        (Path(to) / METADATA_NAME).write_text(about, encoding="utf-8")
    traces = [names["user"], *([names["trace"]] if "trace" in names else [])]
    return Summary(
        files=len(df.inputFiles()),
        users=df.select(names["user"]).distinct().count(),
        traces=df.select(*traces).distinct().count(),
        **counted.counts(),
        guarantee=guarantee.statement,
        private=guarantee.private,
        prior=guarantee.prior,
        second=guarantee.second,
    )


def _without_trace_names(
    names: dict[str, Any], columns: Columns, mechanism: PredictiveMechanism
) -> dict[str, Any]:
    """Ids of traces are read only to be published as they are, which must be asked for."""
    if "trace" not in names or columns.keep_trace_names:
        return names
    if columns.trace is not None or isinstance(mechanism.window, EachTrace):
        raise ParameterError(
            "Spark cannot number traces: add --keep-trace-names to publish their ids as they are, "
            "or leave out --trace, or --engine spark"
        )
    return {role: name for role, name in names.items() if role != "trace"}


def _check_losses(df: DataFrame, names: dict[str, Any]) -> None:
    """Before anything is written: raises if more than a tenth would be left out."""
    places = {role: names[role] for role in ("user", "time", "lat", "lon")}
    validator = Validator(drop_bad=True)
    validator.dropped = count_bad(df, **places)
    if validator.dropped:
        validator.points = df.count()
        validator.check_losses()


class _Counted:
    """Counts rows while Spark goes through them."""

    _REASONS = tuple(FAULT_REASONS.values())

    def __init__(self, key_file: str) -> None:
        self._key_file = key_file
        self._read, self._released = Observation(), Observation()

    def observe_read(self, rows: DataFrame) -> DataFrame:
        bad = [
            _count(fault_reason() == reason, f"bad_{i}") for i, reason in enumerate(self._REASONS)
        ]
        return rows.observe(self._read, f.count(f.lit(1)).alias("points"), *bad)

    def observe_released(self, rows: DataFrame) -> DataFrame:
        kinds = [_count(f.col("kind") == kind.value, kind.value) for kind in _KINDS]
        is_count = f.col("kind").startswith(COUNTS)
        thinned = f.sum(f.when(is_count, f.col("cost")).otherwise(0.0))
        sealed = f.collect_list(f.when(is_count, f.col("kind")))
        return rows.observe(
            self._released, *kinds, thinned.alias("thinned"), sealed.alias("sealed")
        )

    def counts(self) -> dict[str, Any]:
        """What became of the points, as a summary has it."""
        read, released, displacements = self._read.get, self._released.get, self._displacements()
        bad = {r: read[f"bad_{i}"] for i, r in enumerate(self._REASONS) if read[f"bad_{i}"]}
        kinds = {kind.value: released[kind.value] for kind in _KINDS}
        thinned = int(released["thinned"] or 0)
        refused = read["points"] - sum(bad.values()) - thinned - sum(kinds.values())
        return {
            "points": read["points"],
            "bad": bad,
            "thinned": thinned,
            "refused": refused,
            "displacement_mean_m": displacements.mean_m,
            "displacement_p90_m": displacements.p90_m,
        } | kinds

    def _displacements(self) -> Displacements:
        """Of all partitions, to a hundredth; of none, if they were sealed with another key."""
        total = Displacements()
        for row in self._released.get["sealed"]:
            content = unseal(self._key_file, base64.b64decode(row.removeprefix(COUNTS)))
            if content is None:
                return Displacements()
            total.include(Displacements.from_bytes(content))
        return total


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
    started_by_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if (master or "local").startswith("local") and not started_by_submit:
        # The Python that runs this has hereish; the first on the path may not.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Of PySpark, about parts of pandas that are not used here.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    builder = SparkSession.builder.appName("hereish sanitize")
    if master is not None:
        builder = builder.master(master)
    builder = builder.config("spark.ui.showConsoleProgress", str(not quiet).lower())
    session: SparkSession = builder.getOrCreate()
    if hasattr(session, "_jvm"):
        session.sparkContext.setLogLevel("ERROR")
        if str(session.sparkContext.master).startswith("local"):
            # Two hundred partitions, Spark's default, are for clusters.
            parts = str(_PARTITIONS_PER_CORE * session.sparkContext.defaultParallelism)
            if session.conf.get(_PARTITIONS) == _SPARKS_DEFAULT:
                session.conf.set(_PARTITIONS, parts)
    # Of times that do not say their zone.
    zone = "UTC" if columns.zone is None else columns.zone.key
    session.conf.set("spark.sql.session.timeZone", zone)
    return session


def _read(
    spark: SparkSession, inputs: Sequence[str], form: str, *, multi_line: bool = False
) -> DataFrame:
    failure: str | None = None
    try:
        if form == "csv":
            # By the names in each header; within a folder Spark checks that they are the same.
            csv = spark.read.options(header=True, enforceSchema=False, multiLine=multi_line)
            frames = [csv.csv(one) for one in inputs]
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
    with _silent_errors():
        if form == "csv":
            out.write.csv(to, header=True)
        else:
            out.write.parquet(to)


@contextmanager
def _silent_errors() -> Iterator[None]:
    """Errors of Spark hold plans and rows: only their name, or our own text, is passed on."""
    failure: str | None = None
    try:
        yield
    except HereishError:
        raise
    except Exception as broken:  # noqa: BLE001  # of Spark, or of Java below it
        failure = _our_text(broken)
    if failure is not None:
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
                "points out, unless they are more than a tenth)"
            )
    found = [line for line in text.splitlines() if line.startswith("hereish.errors.")]
    if found:
        return found[-1].partition(": ")[2]
    if "No module named 'hereish'" in text:
        return (
            "hereish is not installed where Spark runs Python: PYSPARK_PYTHON names one that has it"
        )
    return f"Spark failed ({condition or type(broken).__name__}); see its logs"
