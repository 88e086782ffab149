"""How memory is asked for while files are sanitised."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # as malloc.h of glibc numbers them
_KEPT_BYTES = 256 << 20
_LARGEST_BYTES = 64 << 20  # what is larger is asked for by itself, and returned at once


def keep_freed_memory() -> None:
    """Use memory again that was freed, where the C library can be told so.

    Each unit of rows takes and frees the same arrays. Returned to the system in between, all of
    their pages are cleared again, which takes a quarter of the time.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # a C library without it
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_ARENA_MAX, 1)  # threads share what was freed
