"""Traces as people keep them: rows of a table. `pip install 'hereish[frames]'`."""

from hereish.traces.frames import sanitize_frame

__all__ = ["sanitize_frame"]
