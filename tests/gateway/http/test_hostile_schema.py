"""Requests made from the gateway's own OpenAPI schema, right ones and wrong ones.

Schemathesis checks that there is no 500, that status codes, content types, headers and shapes are
as documented, that what breaks the schema is refused and what keeps it is taken, that a method
which is not there is refused, and that nothing works without the token.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import hostile_schema_hooks
from tests.support.hostile_stage import Hostile, hostile

EXAMPLES = 60  # at most, for each operation, beside the systematic ones


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    with hostile(tmp_path_factory.mktemp("schema")) as stage:
        yield stage


def schemathesis(stage: Hostile, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    hooks = Path(hostile_schema_hooks.__file__)
    return subprocess.run(  # noqa: S603  # a tool that we installed
        [
            *(str(Path(sys.executable).with_name("schemathesis")), "run"),
            f"{stage.running.url}/openapi.json",
            # Its own form of this check knows no exceptions: valid_data_is_taken does.
            *("--exclude-checks", "positive_data_acceptance", "--continue-on-failure"),
            *("--max-examples", str(EXAMPLES), "--generation-deterministic", "--seed", "1"),
            *("--no-color", "--warnings", "off", *words),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": hooks.stem, "PYTHONPATH": str(hooks.parent)},
    )


def test_every_operation_keeps_what_the_schema_says(stage: Hostile, tmp_path: Path) -> None:
    token = stage.tokens["alice"]
    done = schemathesis(stage, tmp_path, "--header", f"Authorization: Bearer {token}")
    assert done.returncode == 0, done.stdout + done.stderr
    # They were not all refused at the door: it is easy to keep a schema that way.
    seen = Counter((line.get("route"), line.get("status")) for line in stage.running.lines())
    for route in ("/v1/report", "/v1/history", "/v1/budget", "/v1/devices"):
        assert seen[route, 200] > 0, seen
        assert seen[route, 401] > 0, seen  # tried without the token
    assert seen["/owntracks", 200] > 0, seen
    for status in (200, 422):
        assert seen["/v1/report", status] >= EXAMPLES // 5, seen


def test_without_a_token_the_same_requests_get_nothing(stage: Hostile, tmp_path: Path) -> None:
    before = len(stage.running.lines())
    done = schemathesis(stage, tmp_path, "--max-examples", "10", "--checks", "valid_data_is_taken")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = stage.running.lines()[before:]
    private = ("/v1/", "/owntracks", "/overland", "/osmand")
    seen = {line["status"] for line in lines if line.get("route", "").startswith(private)}
    assert 401 in seen
    assert seen <= {401, 405, 422}  # a query is looked at first, and says nothing of anybody
