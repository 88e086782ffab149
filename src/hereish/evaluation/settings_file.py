"""Settings of a mechanism in a TOML file: written by `hereish tune`, read by `--settings`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hereish.core.settings import MechanismSettings
from hereish.errors import ParameterError

# For each table of the file: its keys, the settings that they are, and the limits of the numbers.
_TABLES: dict[str, dict[str, tuple[str, float, float]]] = {
    "promise": {"level": ("level", 0.0, 1e3), "radius_m": ("radius_m", 0.0, 1e7)},
    "mechanism": {
        "noise_accuracy_m": ("accuracy_m", 0.0, 1e7),
        "eta": ("eta", 0.0, 1e3),
        "gamma": ("gamma", 0.0, 1e3),
        "prediction_rate": ("prediction_rate", 0.0, 1.0),
    },
    "skip": {"speed_kmh": ("skip_kmh", 0.0, 1e4), "limit_m": ("skip_limit_m", 0.0, 1e7)},
}
_RESTART = "restart_after_passed_test"  # in [skip]: a passed test starts the clock of the skip anew


def read(path: str | Path) -> MechanismSettings:
    """The settings in a file; every number is checked."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise ParameterError(f"{path} is not TOML: {wrong}") from None
    unknown = set(tables) - {*_TABLES, "about", "measured"}
    if unknown:
        raise ParameterError(
            f"{path} has an unknown table [{min(unknown)}]; expected {', '.join(_TABLES)}, about "
            "or measured"
        )
    values: dict[str, Any] = {}
    for name in _TABLES:
        if name != "skip" or name in tables:
            values |= _read_numbers(path, name, tables.get(name))
    if "skip" in tables:
        restart = tables["skip"].get(_RESTART, False)
        if not isinstance(restart, bool):
            raise ParameterError(f"{path}: [skip] {_RESTART} must be true or false")
        values["skip_since"] = "tested" if restart else "hard"
    return MechanismSettings(**values)


def _read_numbers(path: str | Path, name: str, table: Any) -> dict[str, float]:
    if not isinstance(table, dict):
        raise ParameterError(f"{path} has no table [{name}]")
    keys = _TABLES[name]
    unknown = set(table) - {*keys, *([_RESTART] if name == "skip" else [])}
    if unknown:
        raise ParameterError(
            f"{path}: unknown key {min(unknown)} in [{name}]; expected {', '.join(keys)}"
        )
    values = {}
    for key, (field, low, high) in keys.items():
        value = table.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ParameterError(f"{path}: [{name}] {key} must be a number, found {value!r}")
        if not low < value < high:
            raise ParameterError(
                f"{path}: [{name}] {key} must lie between {low:g} and {high:g}, found {value!r}"
            )
        values[field] = float(value)
    return values


def format_settings(
    settings: MechanismSettings, about: dict[str, Any], measured: dict[str, Any]
) -> str:
    """The text of the file, with what it was made from and what was measured, for people."""
    lines = [
        "# Settings for hereish sanitize --settings.",
        "# They were tuned on people's traces, so they are derived from them: if those are secret,",
        "# tune on others. The promise below holds whatever the other numbers are.",
        "",
    ]
    for name, keys in _TABLES.items():
        values = {key: getattr(settings, field) for key, (field, _, _) in keys.items()}
        if name == "skip":
            if settings.skip_kmh is None:
                continue
            values[_RESTART] = settings.skip_since == "tested"
        missing = [key for key, value in values.items() if value is None]
        if missing:
            raise ParameterError(
                f"a settings file needs {missing[0]}, which the settings leave out"
            )
        lines += _format_table(name, values)
    return "\n".join([*lines, *_format_table("about", about), *_format_table("measured", measured)])


def _format_table(name: str, values: dict[str, Any]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_format_value(value)}" for key, value in values.items()), ""]


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
