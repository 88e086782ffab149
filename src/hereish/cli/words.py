"""Numbers as people say them."""

from __future__ import annotations


def far(metres: float) -> str:
    """A length: 850 m, 2.3 km."""
    return f"{metres:.0f} m" if metres < 1000 else f"{metres / 1000:.3g} km"
