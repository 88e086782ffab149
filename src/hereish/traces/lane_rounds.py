"""The lanes of a call: all at once, or the windows of each user one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hereish.core.batch import sanitize
from hereish.core.batch_results import Sanitized
from hereish.core.mechanism import PredictiveMechanism
from hereish.core.randomness import Draws, KeyedDraws
from hereish.core.run import NO_WINDOW, Run
from hereish.core.types import Bools, Floats, Ints
from hereish.traces.order import inverse


@dataclasses.dataclass(frozen=True)
class LaneRounds:
    """The lanes of a call, sorted by user and time: all at once, or round by round."""

    mechanism: PredictiveMechanism
    points: Floats
    at_s: Floats
    offsets: Ints
    draws: Draws | KeyedDraws | None
    keyed: Sequence[str] | None  # names of the lanes

    def all_at_once(self, run: Run | None) -> Sanitized:
        return sanitize(
            self.mechanism,
            self.points,
            self.at_s,
            self.offsets,
            draws=self.draws,
            users=self.keyed,
            run=run,
        )

    def one_after_the_other(self, user: Ints, given: Run | None, carried: Run | None) -> Sanitized:
        """Each lane goes on from the one before of its user, which had a budget of its own.

        `carried` is what the first lane of each user goes on from, if it has no run of its own.
        """
        run = writable_copy(self.mechanism.run(len(user)) if given is None else given)
        first = np.flatnonzero(np.diff(user, prepend=-1))
        number = np.arange(len(user)) - np.repeat(first, np.diff(np.append(first, len(user))))
        parts: list[tuple[Ints, Sanitized]] = []
        for turn in range(int(number.max(initial=-1)) + 1):
            lanes = np.flatnonzero(number == turn)
            new = lanes[not_begun(run.take(lanes))]
            before = carried if turn == 0 else run.take(lanes - 1)
            if before is not None and len(new):
                fresh = before.take(np.isin(lanes, new)).with_fresh_budget()
                # Of a new lane nothing is spent, unless less than a whole budget was granted.
                put_runs(run, new, fresh._replace(spent=run.spent[new]))
            rows, offsets = _rows_of(self.offsets, lanes)
            out = sanitize(
                self.mechanism,
                self.points[rows],
                self.at_s[rows],
                offsets,
                draws=self.draws,
                users=None if self.keyed is None else [self.keyed[i] for i in lanes.tolist()],
                run=run.take(lanes).frozen(),
            )
            if out.run is not None:
                put_runs(run, lanes, out.run)
            parts.append((lanes, out))
        if not parts:
            return self.all_at_once(given)
        return self._joined(parts, None if given is None else run.frozen())

    def _joined(self, parts: Sequence[tuple[Ints, Sanitized]], run: Run | None) -> Sanitized:
        """The results of all rounds as that of one."""
        rows = np.concatenate([_rows_of(self.offsets, lanes)[0] for lanes, _ in parts])
        back = inverse(rows)
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(out, name) for _, out in parts])[back]
            for name in ("value", "released", "hard", "eps_test", "eps_noise", "threshold")
        }
        spent = np.zeros(len(self.offsets) - 1)
        for lanes, out in parts:
            spent[lanes] = out.spent
        charged = None
        if parts[0][1].charged is not None:
            charged = np.concatenate([out.charged for _, out in parts if out.charged is not None])
            charged = charged[back]
        return dataclasses.replace(parts[0][1], **columns, spent=spent, run=run, charged=charged)


def not_begun(run: Run) -> Bools:
    """The lanes that have had no report yet; with limits, a refused one counts as well."""
    begun = (run.limit_bucket != NO_WINDOW).any(axis=1)
    return np.asarray(np.isnan(run.at_s) & ~begun)


def _rows_of(offsets: Ints, lanes: Ints) -> tuple[Ints, Ints]:
    """The rows of these lanes, and where each begins among them."""
    lengths = offsets[lanes + 1] - offsets[lanes]
    begins = np.append(0, np.cumsum(lengths))
    return np.arange(begins[-1]) + np.repeat(offsets[lanes] - begins[:-1], lengths), begins


def put_runs(run: Run, lanes: Ints, others: Run) -> None:
    """Write the runs of some lanes into those of all."""
    for field, values in zip(run, others, strict=True):
        field[lanes] = values


def writable_copy(run: Run) -> Run:
    """The same runs in arrays that nobody else holds."""
    fields: list[Any] = [field.copy() for field in run]
    return Run(*fields)
