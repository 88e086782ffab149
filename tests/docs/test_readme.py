"""The README is short, and its table, picture and install commands are true."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from hereish import demo
from tests.support.paths import ROOT

README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "demo-trace.svg"


def test_it_is_short_and_says_what_it_is() -> None:
    text = README.read_text("utf-8")
    assert len(text.split()) <= 700
    first = re.sub(r"[*\s]+", " ", text.split("\n\n")[1])
    assert "differential privacy" in first
    assert "geo-indistinguishability" in first
    assert first.count(". ") <= 1


def test_the_table_is_what_the_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "compare.py"), run_name="__main__")
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    text = README.read_text("utf-8")
    assert len(printed) == 6
    assert "`python examples/compare.py` prints it" in text
    for line in printed:
        assert f"{line}\n" in text


def test_the_picture_is_that_of_the_demo(tmp_path: Path) -> None:
    """By its texts, which matplotlib writes as comments: shapes differ with its version and fonts.

    `python -m hereish.demo --seed 1 --picture docs/images/demo-trace.svg` draws it.
    """
    pytest.importorskip("matplotlib", reason="no picture was drawn: pip install 'hereish[plot]'")
    assert demo.main(["--seed", "1", "--picture", str(tmp_path / "fresh.svg")]) == 0
    assert texts(PICTURE) == texts(tmp_path / "fresh.svg")
    assert len(texts(PICTURE)) > 10
    assert PICTURE.stat().st_size < 256_000


def texts(picture: Path) -> list[str]:
    return re.findall(r"<!-- (.+?) -->", picture.read_text("utf-8"), re.S)


@pytest.mark.parametrize(
    "page", [README, ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")], ids=lambda path: path.name
)
def test_every_extra_that_a_page_installs_is_one(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = re.findall(r"pip\s+install\s+'(?:hereish|\.)\[([\w,]+)\]'", page.read_text("utf-8"))
    for extras in found:
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
