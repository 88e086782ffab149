"""The figures as files: complete, in their folder, and the same bytes each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from hereish.evaluation.figures.files import draw_study
from hereish.evaluation.study import Row
from tests.support.study_figures import png_size, study_rows, without_metrics


def test_where_nothing_is_known_nothing_is_drawn(tmp_path: Path) -> None:
    rows = [without_metrics(r) for r in study_rows() + study_rows(sampling="gaps")]
    assert draw_study(rows, tmp_path) == []
    assert draw_study([], tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_files_are_whole_and_differ_in_name(tmp_path: Path) -> None:
    ps = (0.0, 1.0)
    written = draw_study(study_rows(ps) + study_rows(ps, sampling="gaps"), tmp_path / "a" / "b")
    assert [path.name for path in written] == [
        "geolife-authors-fixed-rate.png",
        "geolife-authors-fixed-rate-skip.png",
        "geolife-authors-fixed-utility.png",
        "geolife-authors-fixed-utility-skip.png",
        "geolife-gaps-fixed-rate.png",
        "geolife-gaps-fixed-rate-skip.png",
        "geolife-gaps-fixed-utility.png",
        "geolife-gaps-fixed-utility-skip.png",
        "geolife-overview.png",
    ]
    assert sorted(written) == sorted((tmp_path / "a" / "b").iterdir())
    assert {png_size(path) for path in written} == {(1800, 750)}


def only(rows: list[Row], manager: str, skip: bool) -> list[Row]:
    return [r for r in rows if (r["manager"], r["skip"]) == (manager, skip)]


def test_names_of_data_sets_stay_in_the_folder_and_apart(tmp_path: Path) -> None:
    names = ["a b", "A-b", "..", "../x\\y\n"]
    rows = [r for name in names for r in only(study_rows((0.5,), name), "fixed_rate", True)]
    rows += only(study_rows((0.5,), "a b", as_published=True), "fixed_rate", True)
    written = draw_study(rows, tmp_path / "out")
    assert sorted(path.name for path in written) == [
        "A-b-authors-fixed-rate-skip-2.png",
        "a-b-as-published-authors-fixed-rate-skip.png",
        "a-b-authors-fixed-rate-skip.png",
        "data-authors-fixed-rate-skip.png",
        "x-y-authors-fixed-rate-skip.png",
    ]
    assert sorted(written) == sorted((tmp_path / "out").iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_same_bytes_whatever_matplotlib_is_told(tmp_path: Path) -> None:
    rows = only(study_rows((0.0, 0.5)), "fixed_utility", True)
    first = [path.read_bytes() for path in draw_study(rows, tmp_path / "one")]
    wild: Any = {
        "savefig.bbox": "tight",
        "savefig.dpi": 30,
        "font.size": 30,
        "axes.facecolor": "red",
    }
    with mpl.rc_context(wild):
        before = dict(mpl.rcParams)
        second = [path.read_bytes() for path in draw_study(rows, tmp_path / "two")]
        assert dict(mpl.rcParams) == before
    assert first == second
    assert len(first) == 1
