"""The guarantee beside a file of a format that has no place for it, as "CSV on the Web" does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hereish.traces.guarantee import GuaranteeMetadata

SUFFIX = "-metadata.json"
_OF_FOLDER = f"csv{SUFFIX}"


def sidecar_path(output: Path) -> Path:
    """Where the metadata of a file or a folder are."""
    return output / _OF_FOLDER if output.is_dir() else output.with_name(output.name + SUFFIX)


def is_sidecar(path: Path) -> bool:
    return path.name.endswith(SUFFIX)


def sidecar_text(file_name: str | None, guarantee: GuaranteeMetadata) -> str:
    """The content, for one file or for all files of a folder."""
    about: dict[str, Any] = {"@context": "http://www.w3.org/ns/csvw"}
    if file_name is not None:
        about["url"] = file_name
    about |= {"dc:description": guarantee.description, "hereish": guarantee.as_dict()}
    return json.dumps(about, indent=2) + "\n"


def read_sidecar(output: Path) -> GuaranteeMetadata | None:
    """The guarantee of a file or a folder; None if nothing beside it says so."""
    try:
        about = json.loads(sidecar_path(output).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return GuaranteeMetadata.from_dict(about.get("hereish") if isinstance(about, dict) else None)
