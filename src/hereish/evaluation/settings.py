"""Settings of a mechanism in a file, such as `hereish tune` writes and `hereish sanitize` takes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hereish.core.mechanism import OnExhausted, PredictiveMechanism, fixed_utility
from hereish.core.privacy import Privacy
from hereish.core.skip import SkipBySpeed
from hereish.core.windows import Window
from hereish.errors import ParameterError

# What is in each part of the file, and between which numbers it lies.
_PARTS: dict[str, dict[str, tuple[float, float]]] = {
    "promise": {"level": (0.0, 1e3), "radius_m": (0.0, 1e7)},
    "mechanism": {
        "noise_accuracy_m": (0.0, 1e7),
        "eta": (0.0, 1e3),
        "gamma": (0.0, 1e3),
        "prediction_rate": (0.0, 1.0),
    },
    "skip": {"speed_kmh": (0.0, 1e4), "limit_m": (0.0, 1e7)},
}


@dataclass(frozen=True)
class Settings:
    """A fixed utility with numbers of its own, and when it skips the test."""

    level: float
    radius_m: float
    noise_accuracy_m: float  # fresh noise lies within this, nine times out of ten
    eta: float
    gamma: float
    prediction_rate: float
    speed_kmh: float | None = None  # None: no test is skipped
    limit_m: float | None = None
    restart: bool = False  # whether a passed test starts the clock of the skip anew

    def mechanism(
        self, window: Window | None = None, on_exhausted: OnExhausted = "stop"
    ) -> PredictiveMechanism:
        """The mechanism. Its guarantee is that of level and radius, whatever the other numbers."""
        skip = None
        if self.speed_kmh is not None:
            since = "tested" if self.restart else "hard"
            skip = SkipBySpeed(self.speed_kmh, self.limit_m, since)  # type: ignore[arg-type]  # one of two
        return fixed_utility(
            Privacy(self.level, self.radius_m),
            self.noise_accuracy_m,
            eta=self.eta,
            gamma=self.gamma,
            prediction_rate=self.prediction_rate,
            skip=skip,
            window=window,
            on_exhausted=on_exhausted,
        )


def read(path: str | Path) -> Settings:
    """Settings from a file; every number is checked."""
    try:
        told = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise ParameterError(f"{path} is not TOML: {wrong}") from None
    unknown = set(told) - {*_PARTS, "about", "measured"}
    if unknown:
        raise ParameterError(f"{path} has a part [{min(unknown)}] that means nothing here")
    values: dict[str, Any] = {}
    for part, fields in _PARTS.items():
        if part == "skip" and part not in told:
            continue
        values |= _numbers(path, part, told.get(part), fields)
    if "skip" in told:
        restart = told["skip"].get("restart_after_passed_test", False)
        if not isinstance(restart, bool):
            raise ParameterError(f"{path}: [skip] restart_after_passed_test is true or false")
        values["restart"] = restart
    return Settings(**values)


def _numbers(
    path: str | Path, part: str, told: Any, fields: dict[str, tuple[float, float]]
) -> dict[str, float]:
    if not isinstance(told, dict):
        raise ParameterError(f"{path} has no part [{part}]")
    flags = {"restart_after_passed_test"} if part == "skip" else set()
    unknown = set(told) - {*fields, *flags}
    if unknown:
        raise ParameterError(f"{path}: [{part}] {min(unknown)} means nothing here")
    values = {}
    for name, (low, high) in fields.items():
        value = told.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ParameterError(f"{path}: [{part}] {name} must be a number, found {value!r}")
        if not low < value < high:
            raise ParameterError(
                f"{path}: [{part}] {name} must lie between {low:g} and {high:g}, found {value!r}"
            )
        values[name] = float(value)
    return values


def text(settings: Settings, about: dict[str, Any], measured: dict[str, Any]) -> str:
    """The file, with what it was made of and what was measured, for people."""
    lines = [
        "# Settings for hereish sanitize --settings.",
        "# They were tuned on people's traces, so they are derived from them: if those are secret,",
        "# tune on others. The promise below holds whatever the other numbers are.",
        "",
        *_part("promise", {"level": settings.level, "radius_m": settings.radius_m}),
        *_part(
            "mechanism",
            {
                "noise_accuracy_m": settings.noise_accuracy_m,
                "eta": settings.eta,
                "gamma": settings.gamma,
                "prediction_rate": settings.prediction_rate,
            },
        ),
    ]
    if settings.speed_kmh is not None:
        skip = {
            "speed_kmh": settings.speed_kmh,
            "limit_m": settings.limit_m,
            "restart_after_passed_test": settings.restart,
        }
        lines += _part("skip", skip)
    return "\n".join([*lines, *_part("about", about), *_part("measured", measured)])


def _part(name: str, values: dict[str, Any]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items()), ""]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
