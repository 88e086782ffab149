"""docs/architecture.md names every module where it is, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "hereish"
PAGE = ROOT / "docs" / "architecture.md"


def tree(text: str) -> set[str]:
    """The files in the tree that a page begins with, as paths below src/hereish."""
    fence = text.split("```text\nsrc/hereish/\n")[1].split("```")[0]
    folders: list[str] = []
    found = set()
    for line in fence.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2 - 1
        names = re.findall(r"[\w.]+\.(?:py|proof\.md)(?=\s|$)", line)
        first = line.split()[0]
        if first.endswith("/"):
            folders = [*folders[:depth], first]
            depth += 1
        found |= {"".join([*folders[:depth], name]) for name in names}
    return found


def source() -> set[str]:
    """The modules and proofs that there are; what a folder itself holds is in its own line."""
    paths = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.proof.md")]
    inner = [path for path in paths if path.name == "__init__.py" and path.parent != SOURCE]
    return {path.relative_to(SOURCE).as_posix() for path in set(paths) - set(inner)}


def test_the_tree_is_the_one_in_src() -> None:
    named = tree(PAGE.read_text("utf-8"))
    assert not source() - named, "not named in docs/architecture.md"
    assert not named - source(), "named in docs/architecture.md and not there"


def test_every_folder_is_named() -> None:
    named = set(re.findall(r"(\w+)/", PAGE.read_text("utf-8")))
    assert {path.parent.name for path in SOURCE.rglob("__init__.py")} <= named


def test_a_module_that_moved_is_noticed() -> None:
    text = "```text\nsrc/hereish/\n  a.py   what\n  b/     of b: c.py\n    d.py e.py\n  f.py\n```\n"
    assert tree(text) == {"a.py", "b/c.py", "b/d.py", "b/e.py", "f.py"}


def test_the_glossary_is_short_and_has_the_words_of_the_design() -> None:
    part = PAGE.read_text("utf-8").split("## Glossary\n")[1].split("\n## ")[0]
    words = [row.split("|")[1].strip() for row in part.splitlines() if row.startswith("| ")][1:]
    assert len(words) <= 20
    wanted = "report release fix run window budget guess easy hard untested lane"
    assert set(wanted.split()) <= set(words)
    assert len(words) == len(set(words))


def test_every_proof_is_in_the_list() -> None:
    part = PAGE.read_text("utf-8").split("## Proofs\n")[1]
    for proof in SOURCE.rglob("*.proof.md"):
        assert f"(../{Path(proof).relative_to(ROOT).as_posix()})" in part
