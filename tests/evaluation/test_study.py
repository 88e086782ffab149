"""The grid: finished cells are kept, seeds decide everything, and results are tidy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from hereish.errors import ParameterError
from hereish.evaluation import dataset, study
from hereish.evaluation.cabspotting import find_files as cab_files
from hereish.evaluation.cabspotting import load as load_cabs
from hereish.evaluation.study import Study, cells, run

SMALL = Study(ps=(0.2, 0.5), samples=2, most_traces=30)
MEASURED = ("prediction_rate", "test_share", "skipped_share", "error_mean_m", "error_p90_m", "rate")


@pytest.fixture(scope="module")
def city() -> dataset.Trajectories:
    return dataset.synthetic(users=40)


def rows_of(asked: Study, city: dataset.Trajectories, folder: Path, jobs: int = 1) -> list[Any]:
    return run(asked, list(cells(asked, city, "made up", ("authors", "gaps"))), folder, jobs=jobs)


def test_the_same_seed_gives_the_same_table_whatever_the_jobs(
    city: dataset.Trajectories, tmp_path: Path
) -> None:
    one = rows_of(SMALL, city, tmp_path / "1")
    assert rows_of(SMALL, city, tmp_path / "3", jobs=3) == one
    other = Study(ps=(0.2, 0.5), samples=2, most_traces=30, seed=2)
    assert rows_of(other, city, tmp_path / "2") != one


def test_a_table_is_tidy(city: dataset.Trajectories, tmp_path: Path) -> None:
    rows = rows_of(SMALL, city, tmp_path)
    study.write_table(rows, tmp_path / "results.parquet")
    table = pq.read_table(tmp_path / "results.parquet").to_pylist()
    assert table == rows
    keys = [
        (row["dataset"], row["p"], row["mechanism"], row["manager"], row["skip"], row["sampling"])
        for row in table
    ]
    assert len(set(keys)) == len(keys) == 2 * 2 * 10
    for row in table:
        assert row["traces"] > 0
        for name in MEASURED:
            if row[name] is not None:
                assert row[f"{name}_lo"] <= row[name] + 1e-9
                assert row[name] <= row[f"{name}_hi"] + 1e-9
    rates = {row["mechanism"]: row["rate"] for row in table}
    assert rates["rounding"] is None
    assert all(isinstance(row["skip"], bool) for row in table)


def test_finished_cells_are_found_again_and_unfinished_ones_are_not(
    city: dataset.Trajectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = list(cells(SMALL, city, "made up", ("authors",)))
    computed: list[float | None] = []
    compute = study.compute

    def counted(asked: Study, cell: study.Cell) -> list[study.Row]:
        computed.append(cell.p)
        if len(computed) == 2:
            raise KeyboardInterrupt
        return compute(asked, cell)

    monkeypatch.setattr(study, "compute", counted)
    with pytest.raises(KeyboardInterrupt):
        run(SMALL, wanted, tmp_path)
    assert len(list((tmp_path / "cells").glob("*.json"))) == 1
    first = run(SMALL, wanted, tmp_path)
    assert computed == [0.2, 0.5, 0.5]  # the first one was kept
    again = run(SMALL, wanted, tmp_path)
    assert computed == [0.2, 0.5, 0.5]
    assert again == first
    fresh = run(SMALL, list(cells(SMALL, city, "other data", ("authors",))), tmp_path)
    assert len(computed) == 5  # other data are other cells
    assert [row["rate"] for row in fresh] == [row["rate"] for row in first]


def test_a_damaged_cell_does_not_pass_for_a_finished_one(
    city: dataset.Trajectories, tmp_path: Path
) -> None:
    wanted = list(cells(SMALL, city, "made up", ("authors",)))
    rows = run(SMALL, wanted, tmp_path)
    for path in (tmp_path / "cells").iterdir():
        path.write_text(path.read_text()[:100])
    assert run(SMALL, wanted, tmp_path) == rows
    for path in (tmp_path / "cells").iterdir():
        json.loads(path.read_text())


def test_where_nobody_takes_part_it_says_so(tmp_path: Path) -> None:
    nobody = dataset.Trajectories(
        "short", np.arange(5.0), np.zeros((5, 2)), np.array([0, 5]), np.array([0]), 1
    )
    with pytest.raises(ParameterError, match="short has no trajectory of 20 points"):
        list(cells(SMALL, nobody, "x", ("authors",)))


def test_cabs_as_published_are_read_in_order_of_time(tmp_path: Path) -> None:
    text = "37.75134 -122.39488 0 1213084687\n37.75136 -122.39527 1 1213084659\nbroken line\n"
    (tmp_path / "new_abboip.txt").write_text(text)
    (tmp_path / "new_empty.txt").write_text("")
    (tmp_path / "_cabs.txt").write_text("not a cab")
    found = load_cabs(cab_files(str(tmp_path)))
    assert found.at_s.tolist() == [1213084659.0, 1213084687.0]
    assert found.points.tolist() == [[37.75136, -122.39527], [37.75134, -122.39488]]
    assert (len(found), found.users) == (1, 1)
