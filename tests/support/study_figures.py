"""Rows as the study writes them, and what a figure shows of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from hereish.core.types import Floats
from hereish.evaluation.configurations import configurations
from hereish.evaluation.metrics import StudyMetrics
from hereish.evaluation.study import PS, Row
from hereish.evaluation.study_settings import StudySettings

INDEPENDENT = {"fixed_rate": (1 / 30, 2606.0), "fixed_utility": (0.0563, 1543.0)}


def study_rows(
    ps: tuple[float | None, ...] = PS,
    dataset: str = "geolife",
    sampling: str = "authors",
    **other: Any,
) -> list[Row]:
    """Rows as the study writes them, every number another one."""
    rng = np.random.default_rng(len(ps))
    rows = []
    for p in ps:
        for configuration in configurations(StudySettings()):
            row: Row = {
                "dataset": dataset,
                "p": p,
                "mechanism": configuration.mechanism,
                "manager": configuration.manager,
                "skip": configuration.skip,
                "sampling": sampling,
                "as_published": False,
                "samples": 10,
                "traces": 5000,
            }
            rate, mean_m = INDEPENDENT[configuration.manager]
            usual = (0.6, 0.5, 0.4, mean_m, 1.9 * mean_m, rate, rate)
            for name, value in zip(StudyMetrics._fields, usual, strict=True):
                if configuration.mechanism != "independent":
                    value *= rng.uniform(0.5, 0.9)
                row |= {name: value, f"{name}_lo": 0.98 * value, f"{name}_hi": 1.03 * value}
            rows.append(row | other)
    return rows


def without_metrics(row: Row) -> Row:
    """The row of a p at which no trace is left."""
    nothing = [f"{name}{end}" for name in StudyMetrics._fields for end in ("", "_lo", "_hi")]
    return row | dict.fromkeys(nothing) | {"traces": 0}


def lines(figure: Figure | None) -> dict[str, Floats]:
    """What is drawn, by the name of the line: x and y."""
    assert figure is not None
    return {
        str(line.get_label()): np.asarray(line.get_xydata())
        for axes in figure.axes
        for line in axes.get_lines()
    }


def texts(figure: Figure | None) -> str:
    assert figure is not None
    within = [text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label, axes.title)]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    return "\n".join(
        [figure.get_suptitle(), *titles, *(t.get_text() for t in within + figure.texts)]
    )


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height
