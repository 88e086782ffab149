"""Traces as people keep them: rows of a table. `pip install 'hereish[frames]'`."""

from hereish.traces.frames import sanitize_frame
from hereish.traces.rows import Budgets

__all__ = ["Budgets", "sanitize_frame"]
