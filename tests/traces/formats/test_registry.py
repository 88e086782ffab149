"""The registry has every format, and each can do what a format must."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hereish.errors import ParameterError
from hereish.traces.formats.registry import FORMATS, get_format, recognize


def test_names_and_extensions_are_of_one_format_each() -> None:
    extensions = [extension for form in FORMATS.values() for extension in form.extensions]
    assert len(set(extensions)) == len(extensions)
    for form in FORMATS.values():
        for extension in form.extensions:
            assert recognize(f"a{extension}") is form
            assert recognize(f"A{extension.upper()}.gz") is form
    assert recognize("notes.md") is None


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_can_go_to_another_process(name: str) -> None:
    assert pickle.loads(pickle.dumps(FORMATS[name])) == FORMATS[name]  # noqa: S301  # our own


def test_texts_that_are_not_named_by_a_number_are_no_taxis() -> None:
    assert FORMATS["tdrive"].is_data_file(Path("366.txt"))
    assert not FORMATS["tdrive"].is_data_file(Path("readme.txt"))


def test_an_unknown_format_is_an_error_that_lists_them() -> None:
    with pytest.raises(ParameterError, match="no format 'kml'; use one of gpx, geojson, csv"):
        get_format("kml")
