"""Settings of a mechanism in a TOML file: written by `hereish tune`, read by `--settings`.

The file names a preset with its numbers, or has the settings of the paper's fixed utility.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from hereish.core.presets import PresetNumbers
from hereish.core.settings import (
    LARGEST_NUMBER,
    LARGEST_NUMBERS,
    PREDICTIONS,
    PRESETS,
    MechanismSettings,
)
from hereish.core.windows import Day
from hereish.errors import ParameterError

Keys = dict[str, tuple[str, float, float]]  # the settings that they are, and the limits of each
_PROMISE: Keys = {"level": ("level", 0.0, 1e3), "radius_m": ("radius_m", 0.0, 1e7)}
_ACCURACY: Keys = {"noise_accuracy_m": ("accuracy_m", 0.0, 1e7)}
_PAPERS: Keys = {
    "eta": ("eta", 0.0, 1e3),
    "gamma": ("gamma", 0.0, 1e3),
    "prediction_rate": ("prediction_rate", 0.0, 1.0),
}
# For each table of a file without a preset: its keys, all of which are needed.
_TABLES: dict[str, Keys] = {
    "promise": _PROMISE,
    "mechanism": _ACCURACY | _PAPERS,
    "skip": {"speed_kmh": ("skip_kmh", 0.0, 1e4), "limit_m": ("skip_limit_m", 0.0, 1e7)},
}
# Of [preset], beside its name: those that it has.
_OF_PRESET: Keys = {
    **_ACCURACY,
    "reports": ("reports", 1.0, 1e9),
    "every_s": ("every_s", 0.0, 1e7),
    **_PAPERS,
}
_RESTART = "restart_after_passed_test"  # in [skip]: a passed test starts the clock of the skip anew
_PREDICTION = "prediction"  # in [mechanism] or [preset]: its name, if it is not the usual one
_REMARKS = ("about", "measured")


def read(path: str | Path) -> MechanismSettings:
    """The settings in a file; every number is checked."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise ParameterError(f"{path} is not TOML: {wrong}") from None
    known = ("promise", "preset", "numbers") if "preset" in tables else tuple(_TABLES)
    unknown = set(tables) - {*known, *_REMARKS}
    if unknown:
        raise ParameterError(
            f"{path} has an unknown table [{min(unknown)}]; expected {', '.join(known)}, about "
            "or measured"
        )
    if "preset" in tables:
        return _read_preset(path, tables)
    values: dict[str, Any] = _read_prediction(path, tables, "mechanism")
    for name, keys in _TABLES.items():
        if name != "skip" or name in tables:
            values |= _read_numbers(path, name, tables.get(name), keys)
    if "skip" in tables:
        restart = tables["skip"].get(_RESTART, False)
        if not isinstance(restart, bool):
            raise ParameterError(f"{path}: [skip] {_RESTART} must be true or false")
        values["skip_since"] = "tested" if restart else "hard"
    return MechanismSettings(**values)


def _read_preset(path: str | Path, tables: dict[str, Any]) -> MechanismSettings:
    values: dict[str, Any] = dict(_read_numbers(path, "promise", tables.get("promise"), _PROMISE))
    values |= _read_prediction(path, tables, "preset")
    table = tables["preset"]
    if not isinstance(table, dict) or table.get("name") not in PRESETS:
        raise ParameterError(f"{path}: [preset] name must be one of {', '.join(PRESETS)}")
    given = {key: value for key, value in table.items() if key != "name"}
    asked = {key: limits for key, limits in _OF_PRESET.items() if key in given}
    values |= _read_numbers(path, "preset", given, asked, _OF_PRESET)
    if "reports" in values:
        if values["reports"] != int(values["reports"]):
            raise ParameterError(f"{path}: [preset] reports must be a whole number")
        values["reports"] = int(values["reports"])
    if "numbers" in tables:
        allowed: Keys = {}
        for name in (field.name for field in fields(PresetNumbers)):
            most = LARGEST_NUMBERS.get(name, LARGEST_NUMBER)
            allowed[name] = (name, -most, most)
        own = tables["numbers"] if isinstance(tables["numbers"], dict) else {}
        asked = {name: limits for name, limits in allowed.items() if name in own}
        values["numbers"] = _read_numbers(path, "numbers", tables["numbers"], asked, allowed)
    settings = MechanismSettings(preset=table["name"], **values)
    try:
        settings.build(Day("UTC"))  # the parts check their own numbers
    except ParameterError as wrong:
        raise ParameterError(f"{path}: {wrong}") from None
    return settings


def _read_prediction(path: str | Path, tables: dict[str, Any], name: str) -> dict[str, Any]:
    """The name of a prediction, taken out of the table that has one."""
    table = tables.get(name)
    if not isinstance(table, dict) or _PREDICTION not in table:
        return {}
    found = table.pop(_PREDICTION)
    if found not in PREDICTIONS:
        raise ParameterError(
            f"{path}: [{name}] {_PREDICTION} must be one of {', '.join(PREDICTIONS)}"
        )
    return {_PREDICTION: found}


def _read_numbers(
    path: str | Path, name: str, table: Any, asked: Keys, allowed: Keys | None = None
) -> dict[str, float]:
    """The numbers that are asked for; others may not be there, unless they are allowed."""
    if not isinstance(table, dict):
        raise ParameterError(f"{path} has no table [{name}]")
    allowed = asked if allowed is None else allowed
    unknown = set(table) - {*allowed, *([_RESTART] if name == "skip" else [])}
    if unknown:
        raise ParameterError(
            f"{path}: unknown key {min(unknown)} in [{name}]; expected {', '.join(allowed)}"
        )
    values = {}
    for key, (field, low, high) in asked.items():
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
    tables = _tables_of(settings) if settings.preset is None else _tables_of_preset(settings)
    for name, values in (tables | {"about": about, "measured": measured}).items():
        lines += _format_table(name, values)
    return "\n".join(lines)


def _tables_of(settings: MechanismSettings) -> dict[str, dict[str, Any]]:
    tables = {}
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
        if name == "mechanism" and settings.prediction is not None:
            values[_PREDICTION] = settings.prediction
        tables[name] = values
    return tables


def _tables_of_preset(settings: MechanismSettings) -> dict[str, dict[str, Any]]:
    if settings.skip_kmh is not None or settings.quiet is not None:
        raise ParameterError("a settings file with a preset has no skip speed and no quiet hours")
    values: dict[str, Any] = {"name": settings.preset}
    for key, (field, _, _) in _OF_PRESET.items():
        if getattr(settings, field) is not None:
            values[key] = getattr(settings, field)
    if settings.prediction is not None:
        values[_PREDICTION] = settings.prediction
    promise = {key: getattr(settings, field) for key, (field, _, _) in _PROMISE.items()}
    tables = {"promise": promise, "preset": values}
    return tables | ({"numbers": settings.numbers} if settings.numbers is not None else {})


def _format_table(name: str, values: dict[str, Any]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_format_value(value)}" for key, value in values.items()), ""]


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_format_value, value))}]"
    return repr(value)
