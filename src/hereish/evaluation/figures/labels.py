"""Text in figures, placed where there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from hereish.evaluation.figures.style import DARK

LEFT, RIGHT = 0.02, 0.98  # of a panel's width
_SIZE_PT = 9.0
# Of letters of this size, as shares of a panel; about, as panels differ.
_HIGH, _WIDE = 0.055, 0.019


def add_headline(figure: Figure, title: str, below: str) -> None:
    """What a figure shows, and below it of which data."""
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontweight="bold", fontsize=13.0)
    at = 1.0 - 0.35 / figure.get_figheight()
    figure.text(0.01, at, below, va="top", color=DARK, parse_math=False)


def printable(name: str, most: int) -> str:
    """A name without characters that the font does not have, at most so long."""
    known = "".join(c if c.isprintable() and ord(c) < 0x500 else "?" for c in name)
    return known if len(known) <= most else f"{known[: most - 1]}…"


def label_ends(axes: Axes, labels: Sequence[tuple[float, str, str]]) -> None:
    """Text and its colour at the right, as high as their values where there is room."""
    low, high = axes.get_ylim()
    labels = sorted(labels)
    at = np.array([(value - low) / (high - low) for value, _, _ in labels])
    half = np.array([_HIGH * (text.count("\n") + 1) / 2.0 for _, text, _ in labels])
    for _ in range(100):  # neighbours that overlap move apart, both by half of it
        push = np.maximum(half[1:] + half[:-1] - np.diff(at), 0.0) / 2.0
        at[1:] += push
        at[:-1] -= push
    for height, (_, text, color) in zip(at.tolist(), labels, strict=True):
        axes.text(
            1.02,
            height,
            text,
            transform=axes.transAxes,
            color=color,
            va="center",
            fontsize=_SIZE_PT,
            fontweight="bold",
            linespacing=0.95,
        )


def annotate(
    axes: Axes,
    text: str,
    above: float,
    below: float | None = None,
    *,
    sides: Sequence[float] = (LEFT, RIGHT),
    apart: float = 0.0,
    color: str = DARK,
) -> None:
    """Text above or below a value, or a band, where the lines of the panel are farthest away.

    So draw a line that it belongs to after it.
    """
    low, high = axes.get_ylim()
    places = []
    for va, value, up in (("bottom", above, 1), ("top", above if below is None else below, -1)):
        start = (value - low) / (high - low) + up * apart
        room = [
            _distance_to_lines(axes, side, start + up * _HIGH / 2.0, _WIDE * len(text))
            for side in sides
        ]
        places += [(r, va, start, side) for r, side in zip(room, sides, strict=True)]
    _, va, start, side = max(places, key=lambda place: place[0])
    axes.text(
        side,
        start,
        text,
        transform=axes.transAxes,
        ha="left" if side == LEFT else "right",
        va=va,
        color=color,
        fontsize=_SIZE_PT,
        fontweight="normal" if apart == 0.0 else "bold",
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
        zorder=3.5,
    )


def _distance_to_lines(axes: Axes, side: float, middle: float, wide: float) -> float:
    """How far lines are from text at this place, as a share of the panel's height."""
    if not _HIGH / 2.0 < middle < 1.0 - _HIGH / 2.0:
        return -1.0
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    shares = side + np.linspace(0.0, wide if side == LEFT else -wide, 25)
    x = left + shares * (right - left)
    nearest = 1.0
    for line in axes.get_lines():
        data: Any = line.get_xydata()
        known = data[np.isfinite(data).all(axis=1)]
        if len(known):
            y = (np.interp(x, known[:, 0], known[:, 1]) - low) / (high - low)
            nearest = min(nearest, float(np.abs(y - middle).min()))
    return nearest
