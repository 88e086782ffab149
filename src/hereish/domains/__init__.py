"""Secrets that are no places: streams of numbers, smart meters, statistical databases."""

from hereish.domains.counts import count_space, dashboard
from hereish.domains.meter import DailyProfile, smart_meter
from hereish.domains.streams import Follow, SharedOut, StreamNumbers, stream

__all__ = [
    "DailyProfile",
    "Follow",
    "SharedOut",
    "StreamNumbers",
    "count_space",
    "dashboard",
    "smart_meter",
    "stream",
]
