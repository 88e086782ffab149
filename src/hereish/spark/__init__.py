"""hereish on Apache Spark: traces that do not fit one machine."""

from hereish.spark.batch import canonical_users, sanitize

__all__ = ["canonical_users", "sanitize"]
