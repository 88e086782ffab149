"""One public class name, one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.test_imports import texts


def public_classes(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def defined_twice(sources: dict[str, str]) -> dict[str, list[str]]:
    modules: dict[str, list[str]] = defaultdict(list)
    for module, text in sources.items():
        for name in public_classes(text):
            modules[name].append(module)
    return {name: sorted(found) for name, found in modules.items() if len(found) > 1}


def test_no_public_class_name_is_defined_twice() -> None:
    assert defined_twice(texts()) == {}


def test_a_name_that_is_defined_twice_is_found() -> None:
    same = {"a": "class Run:\n    pass\n", "b": "class Run:\n    pass\n"}
    assert defined_twice(same) == {"Run": ["a", "b"]}
    assert defined_twice({"a": "class _Run: pass", "b": "class _Run: pass"}) == {}
