"""Progress of long work: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Any, Self

_LINE_EVERY_S = 10.0  # in a log
_SHORT_S = 0.5  # what takes no longer needs no bar


class Progress:
    """Shows rate and time left. It is called with what is done, what there is, and points if any.

    What is counted is bytes, or the `unit` that is given.
    """

    def __init__(self, what: str, quiet: bool, unit: str = "B") -> None:
        self._what = what
        self._quiet = quiet
        self._unit = unit
        self._terminal = sys.stderr.isatty()
        self._begun = self._printed = time.monotonic()
        self._bar: Any = None

    def __call__(self, done: int, total: int, points: int | None = None) -> None:
        now = time.monotonic()
        if self._quiet or now - self._begun < _SHORT_S:
            return
        if self._terminal:
            self._draw(done, total, points)
        elif now - self._printed >= _LINE_EVERY_S:
            self._printed = now
            spent = now - self._begun
            parts = [f"{done / total:.0%}"] if total else []
            count, what = (done, self._unit) if points is None else (points, "points")
            parts += [f"{count:,} {what}", f"{count / spent:,.1f} {what}/s"]
            if 0 < done <= total:
                parts.append(f"{_format_minutes(spent * (total - done) / done)} left")
            sys.stderr.write(f"{self._what}: {', '.join(parts)}\n")

    def _draw(self, done: int, total: int, points: int | None) -> None:
        if self._bar is None:
            from tqdm import tqdm

            size = shutil.get_terminal_size()  # without a size tqdm shows nothing
            self._bar = tqdm(
                total=total or None,
                desc=self._what,
                unit=self._unit if self._unit == "B" else f" {self._unit}",
                unit_scale=self._unit == "B",
                leave=False,
                ncols=size.columns,
                nrows=size.lines,
            )
            self._bar.start_t -= _SHORT_S
        if points is not None:
            self._bar.set_postfix_str(f"{points:,} points", refresh=False)
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class StageTimer:
    """How long each stage takes."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def end(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now

    def __str__(self) -> str:
        return ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in self.seconds.items())


def _format_minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
