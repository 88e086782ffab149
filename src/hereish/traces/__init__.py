"""Traces as people keep them: files and data frames in, the same kind out.

Data frames need `pip install 'hereish[frames]'`, Parquet `pip install 'hereish[parquet]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hereish.traces.budgets import Budgets
from hereish.traces.frame_tally import FrameTally

if TYPE_CHECKING:
    from hereish.traces.frames import sanitize_frame

__all__ = ["Budgets", "FrameTally", "sanitize_frame"]


def __getattr__(name: str) -> Any:
    """What data frames need is imported by those who use them."""
    if name == "sanitize_frame":
        from hereish.traces.frames import sanitize_frame

        return sanitize_frame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
