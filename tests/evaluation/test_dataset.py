"""Trajectories from files: nothing is left out for its order without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from hereish.errors import PointError
from hereish.evaluation import dataset


def test_an_export_with_the_newest_first_is_refused_and_not_reduced(tmp_path: Path) -> None:
    rows = [f"2026-05-05T12:{59 - i:02}:00Z,60.0,25.0\n" for i in range(60)]
    falling, rising = tmp_path / "falling.csv", tmp_path / "rising.csv"
    falling.write_text("time,lat,lon\n" + "".join(rows))
    with pytest.raises(
        PointError, match=r"59 of 60 points are out of order.*sort by user and time"
    ):
        dataset.load([str(falling)])
    rising.write_text("time,lat,lon\n" + "".join(reversed(rows)))
    assert len(dataset.load([str(rising)]).at_s) == 60
