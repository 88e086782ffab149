"""The look of all figures, and how they become files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; the green is
# darker than theirs, so that text in it can be read.
BLUE, SKY, RED, ORANGE, GREEN = "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#00805E"
DARK, GREY, LIGHT_GREY, PALE = "#404040", "#707070", "#C4C4C4", "#E8E8E8"
DPI = 150


def new_figure(size_in: tuple[float, float]) -> Figure:
    """A figure with room around its panels.

    It is not one of pyplot: no window system is needed, and no global setting is changed.
    """
    room = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.09)
    return Figure(figsize=size_in, dpi=DPI, layout=room)


def clear_frame(axes: Axes) -> None:
    """Horizontal grid lines below the data, and no frame above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)


@contextmanager
def figure_style() -> Iterator[None]:
    """The same look for everybody; the caller's own settings are restored afterwards."""
    with style.context(["default", {"font.size": 10.0, "axes.titlesize": 11.0}]):
        yield


def save_png(figure: Figure, path: Path) -> None:
    """Write the file atomically; the same figure gives the same bytes."""
    part = path.with_name(f".{path.name}.part")
    FigureCanvasAgg(figure)
    figure.savefig(part, format="png", metadata={"Software": None})
    part.replace(path)
