"""Exports of services as they come: which of their files hold where somebody was.

An archive of Strava's, say, has tables of comments beside the activities, and routes that were
planned. Whatever is not chosen here is counted with the files that are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath

from hereish.errors import ParameterError
from hereish.traces.formats.base import Source

Chooser = Callable[[PurePath], bool]
_ACTIVITY_ENDINGS = (".fit", ".tcx", ".gpx", ".fit.gz", ".tcx.gz", ".gpx.gz", ".zip")


@dataclass(frozen=True)
class _Export:
    """One service's: how its files show that it is one, and which of them are read."""

    signs: tuple[str, ...]  # paths below its root, which are all there
    chosen: Callable[[PurePosixPath], bool]  # by the path below its root


def _in_activities(path: PurePosixPath) -> bool:
    return path.parts[0] == "activities"


def _garmin_files(path: PurePosixPath) -> bool:
    return path.parts[0] == "DI_CONNECT" and path.name.lower().endswith(_ACTIVITY_ENDINGS)


def _dawarich_points(path: PurePosixPath) -> bool:
    return path.parts[0] == "points" or path.name in ("data.json", "points.jsonl")


_EXPORTS = (
    _Export(("activities.csv", "activities"), _in_activities),  # Strava
    _Export(("DI_CONNECT",), _garmin_files),  # Garmin
    _Export(("manifest.json", "points"), _dawarich_points),  # Dawarich, since 2025
    _Export(("data.json", "files"), _dawarich_points),  # and before
)

# Google's Takeout has other things beside: its folders are named in the language of the user.
_TAKEOUT = "Takeout"
_TAKEOUT_FORMATS = ("google", "tcx")  # the first that is there: workouts are in the history, too


def choose_files(names: Collection[PurePath]) -> Chooser:
    """Which files of a folder or an archive are read, by all of their paths in it."""
    paths = {PurePosixPath(*name.parts) for name in names}
    places = paths | {parent for path in paths for parent in path.parents}
    # An export is at the top, or in the only folder there.
    tops = {path.parts[0] for path in paths if path.parts}
    roots = [PurePosixPath(), *([PurePosixPath(*tops)] if len(tops) == 1 else [])]
    for root in roots:
        for export in _EXPORTS:
            if all(root / sign in places for sign in export.signs):
                return _choose_below(root, export)
    return lambda _: True


def _choose_below(root: PurePosixPath, export: _Export) -> Chooser:
    def chosen(path: PurePath) -> bool:
        plain = PurePosixPath(*path.parts)
        return plain.is_relative_to(root) and export.chosen(plain.relative_to(root))

    return chosen


def split_marked_places(sources: Sequence[Source]) -> tuple[list[Source], list[Source]]:
    """The files that were found but places of a Takeout that somebody saved or labeled, and those.

    Those have the times when they were saved, and are not where somebody was.
    """
    inside = [bool(source.location and _TAKEOUT in source.location.parts) for source in sources]
    forms = {source.format.name for source, here in zip(sources, inside, strict=True) if here}
    first = next((form for form in _TAKEOUT_FORMATS if form in forms), None)
    kept: list[Source] = []
    others: list[Source] = []
    for source, here in zip(sources, inside, strict=True):
        form = source.format.name
        marked = form == "geojson" if first is None else form != first
        (others if here and marked else kept).append(source)
    if others and not kept:
        raise ParameterError(
            "this Takeout of Google has no location history: since 2024 the phone keeps it, so "
            "export the Timeline there (in the settings: Location, Timeline)"
        )
    return kept, others
