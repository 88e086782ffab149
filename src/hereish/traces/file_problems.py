"""Files that cannot be read, in one error: how many they are, why, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hereish.errors import HereishError, ParameterError, PointError
from hereish.traces.faults import (
    NoPointsError,
    RefusedFileError,
    UnreadableFileError,
    counted,
)
from hereish.traces.formats.base import Source

Problems: TypeAlias = Sequence[tuple[Source, UnreadableFileError]]
_MOST_NAMED = 3  # files with one reason, and reasons
_LEFT_OUT = "--drop-bad goes on with what can be read"


def place_in(source: Source, error: UnreadableFileError) -> str:
    """The file, and the line of it from which it cannot be read, if that is known."""
    return source.name if error.line is None else f"{source.name}, line {error.line}"


def file_problems(problems: Problems, files: int) -> HereishError:
    """The error of all files that cannot be read, of so many that there are.

    It is one of parameters if the options do not fit any of these.
    """
    options = all(isinstance(error, RefusedFileError) for _, error in problems)
    if files == 1:
        ((source, error),) = problems
        if options:
            return ParameterError(f"{place_in(source, error)}: {error.explain()}")
        message = f"{place_in(source, error)}: {error.explain('nothing was released')}"
        useless = isinstance(error, NoPointsError)
        return PointError(message if useless else f"{message}. {_LEFT_OUT}")
    groups = _by_reason(problems)
    parts = [f"{_name_files(group)}: {group[0][1].explain()}" for group in groups[:_MOST_NAMED]]
    if len(groups) > _MOST_NAMED:
        rest = sum(map(len, groups[_MOST_NAMED:]))
        parts.append(f"{counted(rest, 'file', 'files')} more for other reasons")
    kind = ParameterError if options else PointError
    return kind(
        f"{len(problems):,} of {files:,} files cannot be read; nothing was released. "
        f"{'. '.join(parts)}. {_LEFT_OUT}, unless more than a tenth is lost"
    )


def describe_problems(problems: Problems) -> str:
    """The files by reason, the most frequent one first."""
    groups = _by_reason(problems)
    parts = [f"{_name_files(group)}: {group[0][1].reason}" for group in groups[:_MOST_NAMED]]
    if len(groups) > _MOST_NAMED:
        parts.append(f"and {sum(map(len, groups[_MOST_NAMED:])):,} for other reasons")
    return "; ".join(parts)


def _by_reason(problems: Problems) -> list[list[tuple[Source, UnreadableFileError]]]:
    groups: dict[str, list[tuple[Source, UnreadableFileError]]] = {}
    for source, error in problems:
        groups.setdefault(error.reason, []).append((source, error))
    return sorted(groups.values(), key=len, reverse=True)


def _name_files(group: Problems) -> str:
    names = [place_in(source, error) for source, error in group[:_MOST_NAMED]]
    if len(group) > _MOST_NAMED:
        names.append(f"{len(group) - _MOST_NAMED:,} more")
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
