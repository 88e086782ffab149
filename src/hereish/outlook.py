"""The former name of `hereish.forecast`, kept for those who import it."""

from hereish.forecast import APART_M, Outlook, Telling, outlook

__all__ = ["APART_M", "Outlook", "Telling", "outlook"]
