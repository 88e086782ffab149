"""Files of every family that are made here: whole ones are taken, cut and empty ones are not."""

from __future__ import annotations

from pathlib import Path

from hereish.traces.formats.registry import FORMATS
from tests.support.format_table import FAMILIES, MADE, table_lines, try_samples
from tests.support.paths import ROOT


def test_the_page_has_the_table_of_the_samples(tmp_path: Path) -> None:
    """`python -m tests.support.format_table --write` puts it there."""
    families = try_samples(tmp_path)
    assert set(families) == {FAMILIES[name] for name in FORMATS}
    for family in families.values():
        tried = family.taken + family.without + sum(family.refused.values())
        # Of each sample there are four: itself, in an archive, its first half, and nothing of it.
        assert tried % 4 == 0
        assert family.taken >= tried / 2
        assert not [note for note in family.files if not note.startswith(("cut/", "no/"))]
    page = (ROOT / "docs" / "files.md").read_text("utf-8")
    assert "\n".join(table_lines(families, MADE)) in page
