"""Loaded by schemathesis: when may data that keeps the schema be refused all the same?"""

from __future__ import annotations

from typing import Any

import schemathesis

# What a schema cannot say of a time, by the words of the refusal.
UNSAYABLE = {
    "POST /v1/report": (
        "at must lie after 1970",
        "at must not lie more than",
        "at must say its time zone",
    ),
    "GET /v1/history": ("before must say its time zone",),
    # What phones send is described by their makers, not by our schema. It allows for no body at
    # all; Overland does not.
    "POST /overland": ("the body is not a JSON object",),
}


@schemathesis.check
def valid_data_is_taken(_: Any, response: Any, case: Any) -> None:
    """As positive_data_acceptance, but for the times above. Without a word it may not happen."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if response.status_code in (400, 422):
        told = response.json()["error"]
        assert told.startswith(UNSAYABLE.get(case.operation.label, ())), told
