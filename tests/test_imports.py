"""Imports go one way, folder by folder: what is below never knows what is above."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = ROOT / "src"
# From the bottom to the top. A folder that is not named here belongs to the one around it.
ORDER = (
    *("hereish.errors", "hereish._former_names", "hereish.core", "hereish"),
    *("hereish.synthetic", "hereish.testing", "hereish.lbs", "hereish.client"),
    "hereish.domains",
    "hereish._array_files",
    *("hereish._prior_files", "hereish.priors", "hereish.mobility", "hereish.roads"),
    *("hereish._made_up_days", "hereish.forecast", "hereish.audit"),
    *("hereish.traces", "hereish.spark"),
    *("hereish.gateway", "hereish.gateway.ledger", "hereish.gateway.observability"),
    *("hereish.gateway.http.protocols", "hereish.gateway.forwarding"),
    *("hereish.gateway.admin", "hereish.gateway.http"),
    *("hereish.evaluation", "hereish.evaluation.figures", "hereish.demo"),
    *("hereish.viewer", "hereish.attack", "hereish.cli", "hereish.__main__"),
)


def modules(source: Path = SOURCE) -> dict[str, Path]:
    named = {".".join(path.relative_to(source).with_suffix("").parts): path
             for path in source.rglob("*.py")}  # fmt: skip
    return {name.removesuffix(".__init__"): path for name, path in named.items()}


def imported(node: ast.AST, known: dict[str, Path]) -> Iterator[tuple[str, bool]]:
    """What is imported of our own, and whether only when a function is called.

    What is imported for type checkers alone does not count.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("hereish"):
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield full if full in known else str(child.module), False
        elif isinstance(child, ast.Import):
            yield from ((a.name, False) for a in child.names if a.name.startswith("hereish"))
        else:
            lazy = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from ((name, lazy or later) for name, later in imported(child, known))


def layer(module: str) -> int:
    parts = module.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return ORDER.index(next(prefix for prefix in prefixes if prefix in ORDER))


def upward(sources: dict[str, str]) -> list[str]:
    """The imports that go from a folder to one above it."""
    known = {name: Path() for name in sources}
    return [
        f"{module} imports {other}"
        for module, text in sources.items()
        for other, _ in imported(ast.parse(text), known)
        if layer(other) > layer(module)
    ]


def texts() -> dict[str, str]:
    return {name: path.read_text("utf-8") for name, path in modules().items()}


def test_no_folder_imports_one_above_it() -> None:
    assert upward(texts()) == []


def test_every_folder_has_its_place_in_the_order() -> None:
    known = modules()
    assert set(ORDER) <= known.keys()
    top = {".".join(name.split(".")[:2]) for name in known}
    assert top <= set(ORDER)


def test_an_import_that_goes_up_is_found() -> None:
    bad = {"hereish.core.step": "def f():\n    from hereish.traces import files\n"}
    assert upward(bad) == ["hereish.core.step imports hereish.traces"]
    assert upward({"hereish.traces.files": "from hereish.core.step import step"}) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = modules()
    graph = {
        module: {
            other
            for other, later in imported(ast.parse(path.read_text("utf-8")), known)
            if not later and other != module and path.name != "__init__.py"
        }
        for module, path in known.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)
