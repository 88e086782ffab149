"""Seals tie a proof to the code it speaks of.

Run this file after changing anchored code AND reading its proof again: it writes the new seals.
"""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "hereish"
ANCHOR = re.compile(r"\[([A-Z]\d+)\]")
IN_CODE = re.compile(r"#.*?\[([A-Z]\d+)\]\s*$")
SEAL = re.compile(r"^Sealed: ([0-9a-f]{12})$", re.MULTILINE)


def proofs() -> list[Path]:
    return sorted(SOURCE.rglob("*.proof.md"))


def cited(proof: Path) -> set[str]:
    return set(ANCHOR.findall(proof.read_text(encoding="utf-8")))


def anchors() -> dict[str, str]:
    """Each anchor of the code, with the function (or statement of a class) that it stands in."""
    found: dict[str, str] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = enumerate(text.splitlines(), start=1)
        here = [(anchor, number) for number, line in lines for anchor in IN_CODE.findall(line)]
        if not here:  # as in most files, which then need not be parsed
            continue
        tree = ast.parse(text)
        for anchor, number in here:
            if anchor in found:
                raise ValueError(f"{anchor} stands twice")
            found[anchor] = _dump(_around(tree, number))
    return found


def _around(tree: ast.Module, number: int) -> ast.AST:
    """The innermost function around this line, without its docstring; else the statement."""
    best: ast.AST | None = None
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.Assign, ast.AnnAssign)):
            continue
        if node.lineno <= number <= (node.end_lineno or 0) and (
            best is None or isinstance(node, ast.FunctionDef)
        ):
            best = node
    if best is None:
        raise ValueError(f"no function or statement around line {number}")
    if isinstance(best, ast.FunctionDef) and ast.get_docstring(best) is not None:
        best.body = best.body[1:]
    return best


def _dump(value: object) -> str:
    """A node as ast.dump of Python 3.11 writes it; later versions write other fields."""
    if isinstance(value, list):
        return f"[{', '.join(map(_dump, value))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    fields = {name: getattr(value, name, None) for name in value._fields if name != "type_params"}
    optional = {name for name in fields if getattr(type(value), name, ...) is None}
    written = [
        f"{name}={_dump(field)}"
        for name, field in fields.items()
        if field is not None or name not in optional
    ]
    return f"{type(value).__name__}({', '.join(written)})"


def seal(proof: Path) -> str:
    code = anchors()
    parts = [code[anchor] for anchor in sorted(cited(proof))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


if __name__ == "__main__":
    for path in proofs():
        path.write_text(
            SEAL.sub(f"Sealed: {seal(path)}", path.read_text(encoding="utf-8")), encoding="utf-8"
        )
