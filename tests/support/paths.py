"""Where the repository is, and the data beside it that not every machine has."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
DATA = SHARED / "data"
GEOLIFE = DATA / "geolife.parquet"
