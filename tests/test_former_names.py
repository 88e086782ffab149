"""Modules under their former names, which other people's programs import."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from hereish import _former_names


@pytest.mark.parametrize("former", sorted(_former_names.FORMER_NAMES))
def test_a_former_name_gives_the_very_module(former: str) -> None:
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match="is called"):
        found = import_module(former)
    assert found is import_module(_former_names.FORMER_NAMES[former])
    assert found.__name__ == found.__spec__.name  # type: ignore[union-attr]  # it has one


def test_from_imports_work_too() -> None:
    code = "from hereish.spaces import Sphere; import hereish; assert Sphere is hereish.Sphere"
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603  # our own words


def test_other_names_are_still_not_there() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("hereish.nowhere")
