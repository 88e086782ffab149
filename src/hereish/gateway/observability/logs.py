"""Structured logs: one line of JSON per event, with our own texts only, so that no place is in one.

Texts of exceptions are never written, because they may quote what was sent; their type and the
line that raised them are.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

log = logging.getLogger("hereish.gateway")
# Other libraries' messages may hold addresses or values: only logger and level are written.
_OURS = ("hereish",)
_KNOWN = ("uvicorn", "uvicorn.error")


class JsonLogFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
        }
        name = record.name
        if name.split(".")[0] in _OURS:
            line["event"] = record.msg
            line |= getattr(record, "fields", {})
        else:
            line["event"] = "library"
            line["logger"] = name
            if name in _KNOWN and not record.exc_info:
                line["words"] = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            line |= describe_exception(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False)


def describe_exception(error: BaseException | None) -> dict[str, str]:
    """What may be logged of an exception: its type, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return {"defect": type(error).__name__, "where": where}


def log_event(event: str, level: int = logging.INFO, **fields: object) -> None:
    """Write a line. `fields` are public: never pass what a client sent."""
    if log.isEnabledFor(level):
        log.log(level, event, extra={"fields": fields})


def configure_logging(level: str) -> None:
    """Write all logs of this process to stderr, in this format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLogFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(True)  # as lines too
    for name in (*_OURS, *_KNOWN):
        logging.getLogger(name).setLevel(level.upper())
