"""The table of what a delta brings is what the example prints."""

from __future__ import annotations

import runpy

import pytest

from tests.support.paths import ROOT


def test_the_table_is_what_the_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "with_delta.py"), run_name="__main__")
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    text = (ROOT / "docs" / "guarantee.md").read_text("utf-8")
    assert len(printed) == 7
    assert "`python examples/with_delta.py` prints it" in text
    for line in printed:
        assert f"{line}\n" in text
