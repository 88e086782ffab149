"""hereish on Apache Spark: traces that do not fit one machine."""

from hereish.spark.batch import canonical_users, count_bad, sanitize

__all__ = ["canonical_users", "count_bad", "sanitize"]
