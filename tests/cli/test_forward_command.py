"""`hereish forward`: destinations of releases."""

from __future__ import annotations

from tests.support.terminal import Terminal, output_of


def test_destinations_are_added_listed_and_removed(hereish: Terminal) -> None:
    hereish("user", "add", "alice", "--accuracy", "3km")
    added = hereish(
        *("forward", "add", "alice", "https://recorder.example.org/pub", "--format", "owntracks"),
        *("--login", "alice", "--password", "--header", "X-Limit-U:alice"),
        stdin="hush-hush\n",
    )
    assert "owntracks to https://recorder.example.org/" in output_of(added)
    listed = output_of(hereish("forward", "list", "alice"))
    assert "0 waiting" in listed
    assert "hush" not in listed + output_of(hereish("forward", "list", "alice", "--json"))
    output_of(hereish("forward", "remove", "alice", "1"))
    assert output_of(hereish("forward", "list", "alice")) == ""
    bad = hereish("forward", "add", "alice", "ftp://x/y", "--format", "owntracks")
    assert bad.code == 2
    assert "https" in bad.err
