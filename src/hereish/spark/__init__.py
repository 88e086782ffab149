"""hereish on Apache Spark: traces that do not fit one machine."""

from hereish.spark.batch import canonical_users, count_bad, sanitize
from hereish.spark.sql import register
from hereish.spark.stream import sanitize_stream

__all__ = ["canonical_users", "count_bad", "register", "sanitize", "sanitize_stream"]
