"""What the package promises to those who import it."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from importlib import metadata, resources

import hereish
from tests.support.paths import ROOT


def test_the_public_names_are_the_listed_ones() -> None:
    public = {
        name
        for name, value in vars(hereish).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(hereish.__all__)
    assert list(hereish.__all__) == sorted(hereish.__all__)


def test_every_public_name_says_what_it_is() -> None:
    for name in hereish.__all__:
        assert (getattr(hereish, name).__doc__ or "").strip(), name


def test_the_version_is_the_installed_one_and_the_types_are_shipped() -> None:
    assert hereish.__version__ == metadata.version("hereish")
    assert (resources.files("hereish") / "py.typed").is_file()


def test_the_core_needs_numpy_scipy_and_cryptography_alone() -> None:
    required = [r for r in metadata.requires("hereish") or [] if "extra ==" not in r]
    assert {r.split(">")[0] for r in required} == {"numpy", "scipy", "cryptography"}


def test_importing_hereish_loads_nothing_heavy() -> None:
    # The way to a quick import; how quick is for the benchmarks.
    code = (
        "import sys, hereish\n"
        "heavy = {'scipy', 'matplotlib', 'pandas', 'pyproj', 'asyncio', 'unittest'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603  # our own interpreter and our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_make_command_of_the_pages_is_a_target() -> None:
    rules = re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    targets = {target for rule in rules for target in rule.split()}
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for command in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", page.read_text("utf-8"), re.M):
            assert command in targets, f"{page.name}: make {command}"
