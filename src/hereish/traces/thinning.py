"""Fewer reports, chosen by their public times alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hereish.core.types import Bools, Ints
from hereish.errors import ParameterError

_NEVER = np.iinfo(np.int64).min
_SHORTEST_S, _LONGEST_S = 1e-3, 100 * 365.25 * 86400.0


class Thinner:
    """Keeps the first row of each user, and then each that is at least `every_us` after the last.

    Tables may come in batches. Rows before what was kept already are thinned separately.
    """

    @classmethod
    def by_seconds(cls, every_s: float) -> Thinner:
        """Rows at least so many seconds apart."""
        if not _SHORTEST_S <= every_s <= _LONGEST_S:
            raise ParameterError(
                f"points are taken from a millisecond to a century apart, found {every_s:g} seconds"
            )
        return cls(round(every_s * 1e6))

    def __init__(self, every_us: int) -> None:
        self._every_us = every_us
        self._last_us: dict[object, int] = {}  # the time of each user's last kept row

    def keep(self, user: Ints, names: Sequence[object], at_us: Ints) -> Bools:
        """Which rows are kept; `user` has the number of each row's user among `names`."""
        kept = np.zeros(len(at_us), dtype=np.bool_)
        order = np.lexsort((at_us, user))
        users, times = user[order], at_us[order]
        bounds = np.flatnonzero(np.diff(users, prepend=-1, append=-1))
        for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            name, own = names[users[first]], times[first:end]
            chosen = self._chosen(own, self._last_us.get(name))
            if chosen:
                kept[order[first:end][chosen]] = True
                self._last_us[name] = max(int(own[chosen[-1]]), self._last_us.get(name, _NEVER))
        return kept

    def remember(self, name: object, last_us: int) -> None:
        """The time of a user's last row that was kept earlier, and elsewhere."""
        self._last_us[name] = last_us

    def forget_all_but(self, name: object) -> None:
        """For tables that are sorted by user: nobody but the last one comes again."""
        self._last_us = {key: last for key, last in self._last_us.items() if key == name}

    def _chosen(self, times: Ints, last_us: int | None) -> list[int]:
        # For each row the next that may follow it; then from one to the next.
        follow = np.searchsorted(times, times + self._every_us).tolist()
        chosen, i = [], 0
        late = 0 if last_us is None else int(np.searchsorted(times, last_us))
        while i < late:
            chosen.append(i)
            i = follow[i]
        if last_us is not None:
            i = int(np.searchsorted(times, last_us + self._every_us))
        while i < len(follow):
            chosen.append(i)
            i = follow[i]
        return chosen
