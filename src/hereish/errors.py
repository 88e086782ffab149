"""Everything hereish raises.

    HereishError
    ├── ParameterError   a setting is wrong             (also a ValueError)
    ├── PointError       a secret or its time is wrong  (also a ValueError)
    ├── PartError        parts do not fit, or one broke (also a TypeError)
    ├── StateError       a saved state cannot be used   (also a ValueError)
    └── BudgetExhaustedError  the next report does not fit the budget

Messages about parameters say what was required and what was found. Messages about points say
which point and what is wrong with it, and never the point: an error text is released data.
"""

from __future__ import annotations


class HereishError(Exception):
    """The root of the tree above."""


class ParameterError(HereishError, ValueError):
    """A setting is wrong; the message says what was required, what was found, what to do."""


class PointError(HereishError, ValueError):
    """A secret or its time cannot be used; the message never contains the secret."""


class PartError(HereishError, TypeError):
    """Parts of a mechanism do not fit each other, or one of them failed while it ran."""


class StateError(HereishError, ValueError):
    """A saved session state is damaged or belongs to another mechanism."""


class BudgetExhaustedError(HereishError):
    """The worst case of the next report does not fit what is left of the budget.

    Carries public numbers only: what the report may cost, what is left, and the window.
    """

    def __init__(self, requested: float, remaining: float, covers: str) -> None:
        super().__init__(requested, remaining, covers)
        self.requested = requested
        self.remaining = remaining
        self.difference = requested - remaining
        self.covers = covers

    def __str__(self) -> str:
        return (
            f"privacy budget exhausted for {self.covers}: "
            f"requested {self.requested:.6g}, remaining {self.remaining:.6g}, "
            f"difference {self.difference:.6g}; nothing was released. "
            "Wait for the next window, or build the mechanism with on_exhausted='predict'."
        )


BudgetExhausted = BudgetExhaustedError  # its former name
