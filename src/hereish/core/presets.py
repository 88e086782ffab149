"""Mechanisms that are ready to use: noise first, by the clock, with a memory of places.

The numbers were found by `hereish tune`; docs/tuning.md has the commands that find them again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import time, timedelta

from hereish.core.manhattan import Manhattan
from hereish.core.mechanism import OnExhausted, PredictiveMechanism
from hereish.core.noise_first import NoiseFirst
from hereish.core.pacing import Paced, Quiet, Steady, Tolerance
from hereish.core.parts import check_declared
from hereish.core.places import PlaceMemory
from hereish.core.prediction import Prediction, PredictionFunction
from hereish.core.privacy import Privacy, check_one_report_fits, positive
from hereish.core.remap import Remap
from hereish.core.spaces import Line, Plane, Space, Sphere
from hereish.core.step import check_grid
from hereish.core.windows import Day, Limit, NoReset, Window, split_windows
from hereish.errors import ParameterError

_HALF_HOUR = timedelta(minutes=30)
# With a number of reports, what is expected of guesses and how soon that is learnt: soon enough for
# taxis, whose guesses fail, not to have spent all by half of their reports.
_COUNTED_HARD, _COUNTED_LEARN = 0.15, 4.0
_OFTENEST_S = 300.0  # reports that come sooner are paced like these: nobody moves more often


@dataclass(frozen=True)
class PresetNumbers:
    """What `hereish tune` finds; the defaults are where it begins to search.

    Those of `Tolerance` (`near` in multiples of 1 / epsilon of the whole budget), of `PlaceMemory`
    (`finest` in the same), and of `Paced` and `Steady` (`finest_noise`, the scale of the finest, in
    the same too), which explain them.
    """

    near: float = 10.0
    near_noise: float = 1.8
    strictness: float = 0.15
    longest_s: float = 3600.0
    reach: float = 6.0
    blur: float = 0.7
    habit: float = 0.8
    share: float = 1.1
    per_half_hour: float = 0.35
    more_often: float = 0.3  # the power of 30 min / every by which `per_half_hour` grows
    per_report: float = 0.1
    counted_strictness: float = 0.3  # for so many reports, which may follow each other at once
    usual_hard: float = 0.15
    learn_after: float = 6.0
    adapt: float = 0.15
    settle: float = 0.4
    calm: float = 0.3
    finest: float = 0.0
    finest_noise: float = 0.0
    night: float = 0.0

    def tolerance(self, privacy: Privacy, *, counted: bool = False) -> Tolerance:
        near_m = self.near / privacy.eps_per_m
        strictness = self.counted_strictness if counted else self.strictness
        return Tolerance(near_m, self.near_noise, strictness, self.longest_s, self.calm)

    def memory(self, privacy: Privacy, space: Space, time_zone: str) -> PlaceMemory:
        return PlaceMemory(
            space,
            time_zone,
            reach=self.reach,
            blur=self.blur,
            habit=self.habit,
            finest_m=self.finest / privacy.eps_per_m,
        )


FEW_DAYS = PresetNumbers(
    near=7.786,
    near_noise=2.054,
    strictness=0.1695,
    longest_s=3063.0,
    reach=5.669,
    blur=0.5708,
    habit=0.3749,
    share=1.233,
    per_half_hour=0.4532,
    more_often=0.1716,
    usual_hard=0.07429,
    learn_after=9.946,
    adapt=0.1591,
    settle=0.5506,
    calm=0.485,
)
# Places and noise are no finer than so many / epsilon, and tests are wider, and by night rarer, so
# that weeks tell little of where home is: chosen by what an observer finds, too (docs/tuning.md).
WHOLE_DAY = replace(
    FEW_DAYS,
    near_noise=5.0,
    strictness=0.18,
    reach=8.2,
    blur=0.44,
    per_half_hour=0.39,
    settle=0.54,
    finest=9.0,
    finest_noise=7.3,
    night=4.0,
)
FREQUENT = WHOLE_DAY  # for FEW_DAYS a search for a report every five minutes found no better ones
WALKER = PresetNumbers(
    near=11.28,
    near_noise=1.257,
    strictness=0.2208,
    longest_s=2511.0,
    reach=7.67,
    blur=0.6779,
    habit=0.5973,
    settle=0.3606,
    calm=0.1269,
)
TAXI = PresetNumbers(
    near=1.293,
    near_noise=1.028,
    strictness=0.4575,
    longest_s=2529.0,
    reach=3.955,
    blur=2.0,
    habit=1.027,
    settle=0.6176,
    calm=1.026,
)


def whole_day(
    privacy: Privacy,
    *,
    every: timedelta = _HALF_HOUR,
    window: Window | str | timedelta | None = None,
    quiet: tuple[time, time] | None = None,
    reports: int | None = None,
    accuracy_m: float | None = None,
    prediction: Prediction | PredictionFunction | None = None,
    remap: Remap | None = None,
    space: Space | None = None,
    on_exhausted: OnExhausted = "stop",
    numbers: PresetNumbers | None = None,
) -> PredictiveMechanism:
    """A budget that lasts: reports about `every` so often, until the end of each `window`.

    The window is a calendar day in UTC unless given; with limits beside it (`Day(…) & Days(30)…`)
    the budget lasts within the tightest of them. In the `quiet` hours (two times of the window's
    time zone) the guess is repeated, untested and free, and the budget is kept for the others.
    With `reports` the budget is shared out among so many expected reports per window, whenever they
    come, and more than that get what is left. With `accuracy_m` no noise is larger than that in
    nine of ten cases, and the budget may end before its window; `hereish.forecast` says when. The
    `numbers` are those that keep weeks from telling where home is, unless the budget is never
    renewed: then weeks do not add up.

    Guarantee: as that of every PredictiveMechanism, for each window.
    """
    space = space or Sphere()
    check_declared(space, "space", "smallest_eps", "claim_factor")
    chosen, limits = split_windows(Day("UTC") if window is None else window)
    if isinstance(chosen, NoReset) and reports is None:
        raise ParameterError(
            "a budget that lasts needs a window that ends, such as hereish.Day('Europe/Helsinki'), "
            "or a number of reports (reports=48), found neither"
        )
    if numbers is None:
        numbers = numbers_for(WHOLE_DAY, chosen)
    if not isinstance(every, timedelta):
        raise ParameterError(f"every must be a datetime.timedelta, found {type(every).__name__}")
    every_s = max(positive("every in seconds", every.total_seconds()), _OFTENEST_S)
    often = _HALF_HOUR.total_seconds() / every_s
    time_zone = chosen.time_zone if isinstance(chosen, Day) else "UTC"
    least = 0.0
    if accuracy_m is not None:
        least = _eps_of(privacy, space, accuracy_m, limits)
    counted = reports is not None
    budget = Paced(
        privacy.eps_per_m,
        chosen,
        numbers.tolerance(privacy, counted=counted),
        share=numbers.share,
        per_half_hour=numbers.per_half_hour * often**numbers.more_often,
        usual_hard=_COUNTED_HARD if counted else numbers.usual_hard / often**0.5,
        learn_after=_COUNTED_LEARN if counted else numbers.learn_after,
        adapt=numbers.adapt,
        settle=numbers.settle,
        reports=reports,
        per_report=numbers.per_report,
        quiet=None if quiet is None else _quiet_hours(quiet, chosen),
        least_eps_noise=least,
        smallest_eps=space.smallest_eps / space.claim_factor,
        limits=tuple((one.window, (one.level or 0.0) / privacy.radius_m) for one in limits),
        night=numbers.night,
        # A single finer one would tell at once where somebody is.
        most_eps_noise=privacy.eps_per_m / numbers.finest_noise if numbers.finest_noise else 0.0,
    )
    m = PredictiveMechanism(
        privacy,
        budget,
        space,
        prediction or _memory(numbers, privacy, space, time_zone),
        NoiseFirst(),
        window=chosen,
        on_exhausted=on_exhausted,
        remap=remap,
        limits=limits,
    )
    check_grid(m, min(privacy.eps_per_m, *m.bound.limits) if m.limits else privacy.eps_per_m)
    return m


def steady(
    privacy: Privacy,
    accuracy_m: float,
    *,
    numbers: PresetNumbers,
    window: Window | str | timedelta | None = None,
    prediction: Prediction | PredictionFunction | None = None,
    remap: Remap | None = None,
    space: Space | None = None,
    on_exhausted: OnExhausted = "stop",
) -> PredictiveMechanism:
    """Fresh noise of one accuracy: drawn within `accuracy_m` nine times out of ten, as many as fit.

    After a long stay it is finer. A place that was released before may pull a report further.
    """
    space = space or Sphere()
    chosen, limits = split_windows(window)
    time_zone = chosen.time_zone if isinstance(chosen, Day) else "UTC"
    return PredictiveMechanism(
        privacy,
        Steady(
            _eps_of(privacy, space, accuracy_m, limits),
            numbers.tolerance(privacy),
            numbers.settle,
        ),
        space,
        prediction or _memory(numbers, privacy, space, time_zone),
        NoiseFirst(),
        window=chosen,
        on_exhausted=on_exhausted,
        remap=remap,
        limits=limits,
    )


def numbers_for(numbers: PresetNumbers, window: Window) -> PresetNumbers:
    """Those of a preset, or ones whose places get ever more exact where no budget is renewed."""
    return FEW_DAYS if numbers == WHOLE_DAY and isinstance(window, NoReset) else numbers


def _quiet_hours(quiet: tuple[time, time], window: Window) -> Quiet:
    if not (isinstance(quiet, tuple) and len(quiet) == 2):
        raise ParameterError(f"quiet must be two datetime.time, found {quiet!r}")
    if not isinstance(window, Day):
        raise ParameterError(
            "quiet hours are those of the time zone of a day, so they need a window that is one, "
            f"such as hereish.Day('Europe/Helsinki'), found {type(window).__name__}"
        )
    return Quiet(*quiet, window.time_zone)


def _memory(numbers: PresetNumbers, privacy: Privacy, space: Space, time_zone: str) -> PlaceMemory:
    if type(space) not in (Sphere, Plane, Manhattan, Line):
        raise ParameterError(
            f"give a prediction: the memory of places does not know a {type(space).__name__}"
        )
    return numbers.memory(privacy, space, time_zone)


def _eps_of(privacy: Privacy, space: Space, accuracy_m: float, limits: tuple[Limit, ...]) -> float:
    c_noise = space.c_noise(0.9)
    for level in (privacy.level, *(limit.level or 0.0 for limit in limits)):
        of_window = Privacy(level, privacy.radius_m)
        check_one_report_fits(of_window, c_noise, positive("accuracy_m", accuracy_m))
    return c_noise / accuracy_m
