"""Modules that were imported by other names before the package had folders; those names still work.

`import hereish.spaces` gives the very module `hereish.core.spaces`, with a DeprecationWarning.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# `hereish.prediction` is missing: that name is a function now.
_CORE = (
    *("batch", "budget", "fingerprint", "mechanism", "noise", "privacy", "randomness", "run"),
    *("session", "skip", "spaces", "step", "validation", "windows"),
)
FORMER_NAMES = {
    **{f"hereish.{name}": f"hereish.core.{name}" for name in _CORE},
    "hereish.arrays": "hereish.core.types",
    "hereish.closeness": "hereish.core.decision",
    "hereish.outlook": "hereish.forecast",
    "hereish.sample": "hereish.synthetic",
    "hereish.traces.piece": "hereish.traces.columns",
    "hereish.traces.rows": "hereish.traces.budgets",
}


class FormerNames(MetaPathFinder, Loader):
    """Finds a module under its former name, after everybody else has looked for it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in FORMER_NAMES else None

    def exec_module(self, module: ModuleType) -> None:
        now = FORMER_NAMES[module.__name__]
        warnings.warn(f"{module.__name__} is called {now} now", DeprecationWarning, stacklevel=2)
        # The importer hands out what it finds here: one module, not a copy under a second name.
        sys.modules[module.__name__] = import_module(now)


def install() -> None:
    """Make the former names importable; once is enough."""
    if not any(type(finder) is FormerNames for finder in sys.meta_path):
        sys.meta_path.append(FormerNames())
