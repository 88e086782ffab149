from __future__ import annotations

from hereish.evaluation.figures.curves import Curves
from hereish.evaluation.study import PS
from tests.support.study_figures import study_rows


def test_curves_choose_the_rows_of_their_configuration() -> None:
    curves = Curves.of(study_rows(), "fixed_rate", True)
    assert {m: len(rows) for m, rows in curves.rows.items()} == dict.fromkeys(
        ("predictive", "independent", "repeat"), len(PS)
    )
    assert all(row["skip"] for row in curves.rows["predictive"])
    assert not any(row["skip"] for row in curves.rows["independent"])
