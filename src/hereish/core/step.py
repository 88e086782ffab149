"""THE step: live sessions, batches, the gateway and Spark all go through it. Proof: step.proof.md.

`prepare` is everything that public data decides; the secret is not among its arguments. `decide`
then hands the secret to one part, the decision, and to nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hereish.core.budget import Plan
from hereish.core.decision import Question
from hereish.core.part_calls import (
    OUR_SPACES,
    OURS,
    call_part,
    checked_plan,
    checked_skips,
    guess_of,
    learn,
    own_array,
    window_numbers,
    without_text,
)
from hereish.core.randomness import LateUniforms
from hereish.core.run import Run
from hereish.core.types import Bools, Floats, Ints, PerLane, all_finite, put_rows, read_only_copy
from hereish.errors import PartError

if TYPE_CHECKING:
    from hereish.core.mechanism import PredictiveMechanism


_FEW = 16


class Release(NamedTuple):
    """What one step released in each lane, and what it cost. Public.

    Budgets and thresholds are one number where all lanes share it.
    """

    value: Floats  # NaN where nothing was released
    released: Bools
    hard: Bools
    cost: Floats  # of the outcome: cost_hard where it was hard, else cost_easy
    cost_easy: PerLane
    cost_hard: PerLane
    eps_test: PerLane  # 0 where there was no test
    eps_noise: PerLane  # 0 where no noise could be drawn
    threshold: PerLane  # ±inf where there was no test


class Prepared(NamedTuple):
    """A step before the secret is looked at. Public, and the step's own: no part can change it."""

    run: Run
    at_s: Floats
    guess: Floats
    eps_test: PerLane
    eps_noise: PerLane
    threshold: PerLane
    cost_easy: PerLane
    cost_hard: PerLane
    known: Bools  # there is a guess
    fits: Bools  # the worst case can be paid
    all_tested: bool  # no lane has a threshold of ±inf
    renyi_easy: PerLane = 0.0  # what the outcomes count for where the privacy has a delta
    renyi_hard: PerLane = 0.0


def in_window(m: PredictiveMechanism, run: Run, at_s: Floats) -> Run:
    """The run as it stands at this time: with a fresh budget where a new window has begun, and
    without what its limits no longer count.
    """
    window = window_numbers(m.window, at_s)
    if window is not None:
        run = run.in_window(window)
    return run if m.limiter is None else m.limiter.at(run, at_s)


def prepare(m: PredictiveMechanism, run: Run, at_s: Floats) -> Prepared:
    """Guess, plan, skip and bound, from the public run and the public time alone.

    Parts of a user's own get copies of the run, the time and the plan: whatever they write, the
    step goes on with what it has.
    """
    at_s = at_s.view()  # the run will have it, and make it read-only
    run = in_window(m, run, at_s)
    guess = guess_of(m, run, at_s)  # [S1]
    plan = call_part("budget manager", m.budget, m.budget, run, at_s)  # [S2]
    if not isinstance(plan, Plan):
        raise PartError(f"the budget manager must return a Plan, found {type(plan).__name__}")
    eps_test, eps_noise, threshold = checked_plan(plan, len(at_s), type(m.budget) in OURS)
    if m.skip is not None:
        planned = Plan(eps_test, eps_noise, threshold, plan.skip_limit)
        skips = checked_skips(call_part("skip rule", m.skip, m.skip, run, at_s, planned), at_s)
        if m.tracker is not None:
            # A guess that has just changed is tested: nobody has said yes to it.
            skips = skips & np.equal(guess, run.value).all(axis=1)
        threshold = np.where(skips, np.inf, threshold)
    known = guess[:, 0] == guess[:, 0]
    if np.count_nonzero(known) < len(known):
        threshold = np.where(known, threshold, -np.inf)
    eps_test = m.bound.quantised(eps_test)
    # Never nothing: noise of no budget would be infinite.
    eps_noise = m.bound.quantised(eps_noise)
    if np.count_nonzero(np.less(eps_noise, m.bound.quantum)):
        eps_noise = np.maximum(eps_noise, m.bound.quantum)
    all_tested = all_finite(threshold)
    if not all_tested:
        # A test that is not made costs nothing, and neither does noise that cannot be drawn.
        eps_test = np.where(np.isfinite(threshold), eps_test, 0.0)  # [S3]
        free = np.equal(threshold, np.inf)
        eps_noise = np.where(free, 0.0, eps_noise)
        if m.tracker is not None:
            # Nor is it released untested, in quiet hours: the last release is repeated.
            kept = free & (run.value[:, 0] == run.value[:, 0])
            guess = np.where(kept[:, None], run.value, guess)
    cost_easy, cost_hard = _costs(m, eps_test, eps_noise, threshold)
    renyi_easy: PerLane = 0.0
    renyi_hard: PerLane = 0.0
    if m.renyi is None:
        fits = m.bound.fits(run.spent, cost_hard) & ~run.ended  # [S4]
    else:
        renyi_easy, renyi_hard = m.renyi.costs(eps_test, eps_noise)
        sums = run.renyi_spent[:, 0]
        fits = m.renyi.fits(m.bound, run.spent, cost_hard, sums, renyi_hard) & ~run.ended  # [S14]
    if m.limiter is not None:
        fits &= m.bound.fits_limits(run.limit_spent, cost_hard)  # [S12]
    if m.smallest_eps:
        check_grid(m, np.where(fits, eps_noise, 0.0))  # [S9]
    decided = (guess, eps_test, eps_noise, threshold, cost_easy, cost_hard)
    return Prepared(run, at_s, *decided, known, fits, all_tested, renyi_easy, renyi_hard)


def step(
    m: PredictiveMechanism, run: Run, x: Floats, at_s: Floats, u: Floats
) -> tuple[Release, Run]:
    """One report of each lane: secrets `x`, public times `at_s`, `m.uniforms` columns of `u`.

    Guarantee: what is released, given the run, is `cost * distance`-private in `x` (Lemma 1), and
    `spent` in the new run never exceeds the budget of the window, nor that of any limit.
    """
    return decide(m, prepare(m, run, at_s), x, u)


def decide(
    m: PredictiveMechanism,
    prepared: Prepared,
    x: Floats,
    u: Floats | LateUniforms,
    *,
    in_place: bool = False,
    paid: Callable[[Run], None] | None = None,
) -> tuple[Release, Run]:
    """The private half of the step: the secret decides between the guess and fresh noise.

    `in_place` is for callers that own the prepared run and go on with the new one whatever happens.
    Where a part fails that has seen fresh noise, `paid` is given the run in which it is paid for.
    """
    run, at_s, guess, fits = prepared.run, prepared.at_s, prepared.guess, prepared.fits
    eps_test, eps_noise, threshold = prepared.eps_test, prepared.eps_noise, prepared.threshold
    cost_easy, cost_hard = prepared.cost_easy, prepared.cost_hard
    _check_uniforms(m, u, len(at_s))
    scale = m.space.claim_factor
    failure: BaseException | None = None
    try:
        # A floating-point warning could depend on the secret, so none may come out of here.
        with np.errstate(all="ignore"):
            asked = Question(
                x, guess, eps_test * scale, eps_noise * scale, threshold, prepared.all_tested, fits
            )  # [S5]
            if m.own_decision is not None:
                hard, fresh = m.own_decision.decide(m.decider, m.space, asked, u)  # [S6]
            else:
                answer = m.decider.decide(m.space, read_only_copy(asked), read_only_copy(u))
                hard, fresh = _checked_outcome(prepared, *answer)  # [S7]
            _check_fresh(guess, hard, fresh)
    except BaseException as broken:  # noqa: BLE001  # whatever it was, nothing may be released
        failure = broken
    if failure is not None:
        raise without_text("decision", failure)
    learnt, own = run.learnt, type(m.space) in OUR_SPACES
    if m.learns_from_easy or ((m.tracker is not None or m.remap is not None) and len(fresh)):
        try:
            fresh, learnt = learn(m, prepared, hard, fresh, in_place)  # [S10]
        except BaseException as broken:  # noqa: BLE001  # it is raised again, when this is paid
            failure = broken
        own = True
    value = _merged(guess, hard, fresh, own)
    released, all_fit = fits, np.count_nonzero(fits) == len(fits)
    if not all_fit:
        closed = (~fits).nonzero()[0]
        eps_test, eps_noise, cost_easy, cost_hard = (
            _with(number, 0.0, closed, len(fits))
            for number in (eps_test, eps_noise, cost_easy, cost_hard)
        )
        threshold = _with(threshold, np.inf, closed, len(fits))
        if m.on_exhausted == "predict":
            released = fits | prepared.known
            if m.tracker is not None:
                # Nobody has said yes to a guess that has changed, so the last release is repeated.
                again = ~fits & (run.value[:, 0] == run.value[:, 0])
                value[again] = run.value[again]
        nothing = (~released).nonzero()[0]
        for coordinate in value.T:
            coordinate[nothing] = np.nan
    # Exact: both are whole quanta.
    cost = np.asarray((cost_hard - cost_easy) * hard)  # [S8]
    cost += cost_easy
    for shared in (value, hard):  # with the run
        shared.setflags(write=False)
    release = Release(
        value, released, hard, cost, cost_easy, cost_hard, eps_test, eps_noise, threshold
    )
    ended = run.ended if all_fit else ~fits
    tested = None if prepared.all_tested and all_fit else np.less(threshold, np.inf)
    after = _record(run, release, at_s, ended, tested, learnt, m.needs_history)
    if m.renyi is not None:
        lost = np.where(fits, np.where(hard, prepared.renyi_hard, prepared.renyi_easy), 0.0)
        after = after._replace(renyi_spent=m.renyi.add(run.renyi_spent, lost[:, None]))  # [S15]
    after.frozen()
    if failure is not None:
        if paid is not None:
            paid(after)
        raise failure
    return release, after


def _checked_outcome(prepared: Prepared, hard: Bools, fresh: Floats) -> tuple[Bools, Floats]:
    """A decision's answer as copies that it does not hold.

    Refuses noise that cannot be paid, and an answer where the threshold asks nothing.
    """
    fits, threshold = prepared.fits, prepared.threshold
    if type(hard) is not np.ndarray or type(fresh) is not np.ndarray:
        raise TypeError
    if hard.dtype != np.bool_ or hard.shape != fits.shape or np.count_nonzero(hard & ~fits):
        raise TypeError
    if not prepared.all_tested:
        unasked = fits & ~np.isfinite(threshold)
        if np.count_nonzero(unasked & (hard != np.less(threshold, 0.0))):
            raise TypeError
    return hard.copy(), fresh.copy("K")


def _check_fresh(guess: Floats, hard: Bools, fresh: Floats) -> None:
    """Refuse noise that is not one row for each lane that is hard."""
    if type(fresh) is not np.ndarray or fresh.dtype != np.float64:
        raise TypeError
    if fresh.shape != (np.count_nonzero(hard), guess.shape[1]):
        raise TypeError


def _merged(guess: Floats, hard: Bools, fresh: Floats, own: bool) -> Floats:
    """The guess, and fresh noise in the lanes that are hard; `own`: nobody else holds the noise."""
    if len(fresh) == len(hard):
        return fresh if own else fresh.copy("K")
    value = guess.copy("K")
    if len(fresh):
        put_rows(value, hard.nonzero()[0], fresh)
    return value


def _with(numbers: PerLane, other: float, lanes: Ints, count: int) -> Floats:
    """The numbers of so many lanes, with another one in some: quicker than a choice in each."""
    chosen = np.array(numbers) if np.ndim(numbers) else np.full(count, numbers)
    chosen[lanes] = other
    return chosen


def _record(
    run: Run,
    release: Release,
    at_s: Floats,
    ended: Bools,
    tested: Bools | None,
    learnt: Floats,
    history: bool,
) -> Run:
    """The run with this release in front; lanes that released nothing only learn that they ended.

    `tested` are the lanes in which the secret had a say; None means all.
    """
    value, released, hard, cost = release.value, release.released, release.hard, release.cost
    # Lanes that released nothing keep what they had.
    kept = None if ended is run.ended else (~released).nonzero()[0]
    hard_at_s, hard_threshold, tested_at_s = run.hard_at_s, run.hard_threshold, run.tested_at_s
    if history:
        hard_at_s = np.where(hard, at_s, hard_at_s)
        hard_threshold = np.where(hard, release.threshold, hard_threshold)
        tested_at_s = at_s if tested is None else np.where(tested, at_s, tested_at_s)
    return Run(
        values=_with_newest(run.values, value, kept),
        times_s=_with_newest(run.times_s, at_s, kept),
        hards=_with_newest(run.hards, hard, kept),
        reports=run.reports + (1 if ended is run.ended else released),
        easy=run.easy + (released > hard),
        spent=run.spent + cost,
        ended=ended,
        window=run.window,
        mechanism=run.mechanism,
        hard_at_s=hard_at_s,
        hard_threshold=hard_threshold,
        tested_at_s=tested_at_s,
        learnt=learnt,
        limit_bucket=run.limit_bucket,
        limit_spent=_with_cost(run.limit_spent, cost),
        limit_older=run.limit_older,
        renyi_spent=run.renyi_spent,
    )


def _with_cost(limit_spent: Floats, cost: Floats) -> Floats:
    """What is spent of each limit with this cost, which counts in all of them."""
    return limit_spent + cost[:, None] if limit_spent.shape[1] else limit_spent  # [S13]


def _with_newest(history: Any, newest: Any, kept: Ints | None) -> Any:
    """`newest` in front of the history and the oldest dropped, but not in the lanes `kept`."""
    if history.shape[1] == 1:
        if kept is None:
            return newest[:, None]
        pushed = newest.copy("K")[:, None]
    else:
        pushed = np.concatenate([newest[:, None], history[:, :-1]], axis=1)
    if kept is not None:
        # Column by column, which is many times as fast as all at once.
        for to, old in zip(_columns(pushed), _columns(history), strict=True):
            to[kept] = old[kept]
    return pushed


def _columns(table: Any) -> Any:
    """Views of the columns of a table, whatever its shape; the lanes come first."""
    return [column for rows in table.T for column in (rows if rows.ndim > 1 else (rows,))]


def _costs(
    m: PredictiveMechanism, eps_test: PerLane, eps_noise: PerLane, threshold: PerLane
) -> tuple[PerLane, PerLane]:
    """What each outcome costs. The bound counts in whole quanta, and holds the worst case."""
    if m.own_decision is not None:
        cost_easy, cost_hard = m.own_decision.costs(eps_test, eps_noise)
        return cost_easy, cost_hard
    failure: BaseException | None = None
    try:
        easy, hard = m.decider.costs(read_only_copy(eps_test), read_only_copy(eps_noise))
    except BaseException as broken:  # noqa: BLE001  # it may remember a secret
        failure = broken
    if failure is not None:
        raise without_text("decision", failure)
    shape = np.shape(threshold) or None
    easy, hard = (own_array("decision", cost, shape) for cost in (easy, hard))
    for cost in (easy, hard):
        if not np.all(np.equal(m.bound.quantised(cost), cost)):
            raise PartError("a decision must return costs that are sums of its epsilons")
    if not np.all(np.greater_equal(easy, 0.0) & np.greater_equal(hard, easy)):
        raise PartError("a decision must return costs 0 <= easy <= hard")
    # Where nothing is asked and nothing drawn, nothing is paid.
    free = np.equal(threshold, np.inf)
    return np.where(free, 0.0, easy), np.where(free, 0.0, hard)


def check_grid(m: PredictiveMechanism, eps_noise: PerLane) -> None:
    """Refuse noise so large that doubles have gaps on the grid of the space."""
    drawn = np.where(np.equal(eps_noise, 0.0), np.inf, eps_noise)
    least = float(np.min(drawn, initial=np.inf)) * m.space.claim_factor
    if least < m.smallest_eps:
        raise PartError(
            f"noise of eps {least:.3g} is too large for the grid of the space, which takes eps "
            f"from {m.smallest_eps:.3g}; choose a coarser grid, or spend more on a report; "
            "nothing was released"
        )


def _check_uniforms(m: PredictiveMechanism, u: Floats | LateUniforms, lanes: int) -> None:
    """Refuse draws that would turn into no noise, or into none that was meant."""
    if isinstance(u, LateUniforms):
        if u.shape != (lanes, m.uniforms):
            raise PartError(f"{u.shape} uniforms for {lanes} lanes; nothing was released")
        return  # they are our own, and proper when they are drawn
    if u.shape != (lanes, m.uniforms) or u.dtype != np.float64:
        raise PartError(
            f"draws must give {(lanes, m.uniforms)} uniforms, found {u.shape} {u.dtype}; "
            "nothing was released"
        )
    # NaN is neither above 0 nor below 1. The few of a live report are looked at sooner in Python.
    if u.size <= _FEW:
        proper = all(0.0 < number < 1.0 for number in u.ravel().tolist())
    else:
        proper = bool(u.min() > 0.0 and u.max() < 1.0)
    if not proper:
        raise PartError("uniforms must lie strictly between 0 and 1; nothing was released")
