"""Usage errors of the commands of the gateway."""

from __future__ import annotations

import pytest

from tests.support.terminal import Terminal


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("user", "add", "a", "--mechanism", "independent"), "(--reports 30), found neither"),
        (("user", "add", "a", "--accuracy", "3"), "has no unit"),
        (("user", "add", "a", "--accuracy", "3km", "--time-zone", "Nix"), "IANA name"),
        (("user", "add", "a", "--accuracy", "3km", "--window", "1s"), "at least a minute"),
        (("user", "add", "a/b", "--accuracy", "3km"), "name of a user"),
        (("user", "list", "--database", "mysql://x"), "postgresql+psycopg://"),
        (("ledger", "prune", "--older-than", "90"), "has no unit"),
        (("forward", "list", "nobody"), "there is no user"),
    ],
)
def test_a_usage_error_is_explained(
    hereish: Terminal, words: tuple[str, ...], expected: str
) -> None:
    done = hereish(*words)
    assert done.code in (1, 2)
    assert expected in done.err
