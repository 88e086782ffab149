"""Numbers as people say them."""

from __future__ import annotations


def far(metres: float) -> str:
    """A length: 850 m, 2.3 km."""
    return f"{metres:.0f} m" if metres < 1000 else f"{metres / 1000:.3g} km"


def long(seconds: float) -> str:
    """A duration: 45 s, 30 min, 1.5 h, 12 days."""
    for unit, name, least in ((86400.0, "days", 2.0), (3600.0, "h", 1.0), (60.0, "min", 1.0)):
        if seconds >= least * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
