"""A key is for one query of Spark: another one, or another number of buckets, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hereish.errors import ParameterError, StateError
from tests.support.spark import need_spark

need_spark()
from hereish.spark.query_file import check_query_file  # noqa: E402  # it needs Spark's package


def test_the_first_query_takes_the_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    check_query_file(key, "one", 16)
    check_query_file(key, "one", 16)
    assert [path.name for path in tmp_path.iterdir()] == ["key.stream"]
    with pytest.raises(StateError, match="second budget"):
        check_query_file(key, "another", 16)
    with pytest.raises(StateError, match="other buckets"):
        check_query_file(key, "one", 8)
    with pytest.raises(ParameterError, match="which query"):
        check_query_file(key, None, 16)
    (tmp_path / "key.stream").write_bytes(b"\xff\xfe")
    with pytest.raises(StateError, match="cannot be read"):
        check_query_file(key, "one", 16)
