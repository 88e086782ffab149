"""Numbers and tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime


def format_distance(metres: float, digits: int = 3) -> str:
    """A length: 850 m, 2.34 km, 1,670 km."""
    if metres >= 1e6:
        return f"{metres / 1000:,.0f} km"
    return f"{metres:.0f} m" if metres < 1000 else f"{metres / 1000:.{digits}g} km"


def format_duration(seconds: float) -> str:
    """A duration: 45 s, 30 min, 1.5 h, 12 days."""
    for unit, name, least in ((86400.0, "days", 2.0), (3600.0, "h", 1.0), (60.0, "min", 1.0)):
        if seconds >= least * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"


def format_count(number: int, noun: str) -> str:
    """A number of things: 1 report, 2,000 reports."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_time(at_s: float) -> str:
    """A moment: 2026-05-05 12:00 UTC."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def format_rows(rows: Sequence[tuple[str, str]]) -> str:
    """Names and values in two columns."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}   {value}" for name, value in rows)


def format_table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of as many cells each: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        line[0].ljust(widths[0])
        + "".join(f"  {cell:>{w}}" for cell, w in zip(line[1:], widths[1:], strict=True))
        for line in lines
    )
