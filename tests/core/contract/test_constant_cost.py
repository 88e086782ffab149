"""A report costs the same after a million reports as after ten: in work and in space.

Counted, not timed: a structure that grows with the trace shows in the sizes, a loop over it in
the number of bytecodes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import numpy as np
import pytest

from hereish import (
    AlwaysNoise,
    Constants,
    Every,
    FixedRate,
    FixedUtility,
    Parrot,
    Past,
    Plane,
    PredictiveMechanism,
    Privacy,
    Run,
    Session,
    SkipBySpeed,
    lift,
)
from hereish.core.budget import BudgetManager
from hereish.core.prediction import Prediction
from hereish.core.step import step

START_S = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
STEPS = 10_000
K = Constants(c_noise=3.9, c_test=1.6, eta=0.5, gamma=0.8)


@dataclass
class Counter:
    """Counts the bytecodes that a call runs: every numpy operation takes at least one."""

    opcodes: int = 0

    def trace(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        self.opcodes += event == "opcode"
        return self.trace

    def of(self, call: Callable[[], object]) -> int:
        before, self.opcodes = sys.gettrace(), 0
        gc.disable()  # what others left behind ends in code of theirs, whenever it is collected
        sys.settrace(self.trace)
        try:
            call()
        finally:
            sys.settrace(before)
            gc.enable()
        return self.opcodes


def leaves(state: Any) -> Iterator[Any]:
    """The numbers and strings of a nested state."""
    if isinstance(state, dict | list):
        for item in state.values() if isinstance(state, dict) else state:
            yield from leaves(item)
    else:
        yield state


def as_state(run: Run) -> dict[str, Any]:
    fields = run._asdict().items()  # without those of parts that the mechanism does not have
    return {name: part[0].tolist() for name, part in fields if part.size and name != "mechanism"}


def halfway(past: Sequence[Past], at_s: float) -> Sequence[float] | None:
    """Looks at all the releases it is shown, so it shows if it is shown more and more."""
    return [sum(release.value[i] for release in past) / len(past) for i in (0, 1)] if past else None


MANAGERS: dict[str, BudgetManager] = {
    "fixed utility": FixedUtility(1e8, K),
    "fixed rate": FixedRate(1e-8, 0.5, 5, K),
    "independent": AlwaysNoise(1e-8),
}


@pytest.mark.parametrize("prediction", [Parrot(), lift(halfway, memory=3)], ids=["parrot", "lift"])
@pytest.mark.parametrize("manager", MANAGERS)
def test_a_report_takes_the_same_work_and_space_after_a_million_reports_as_after_ten(
    manager: str, prediction: Prediction
) -> None:
    m = PredictiveMechanism(
        Privacy(1.0, 1.0),
        MANAGERS[manager],
        Plane(),
        prediction,
        skip=SkipBySpeed(limit_m=1.0),  # never skips, but has to be asked
        window=Every(timedelta(days=90_000)),
    )
    counter = Counter()

    def report(session: Session) -> None:
        at_s = START_S + int(session.run.reports[0])
        session.report((0.0, 0.0), datetime.fromtimestamp(at_s, UTC))

    def work(session: Session) -> set[int]:
        # Easy and hard reports take different ways, so look at enough for some of both.
        return {counter.of(lambda: report(session)) for _ in range(40)}

    def size(session: Session) -> list[object]:
        state = session.to_state()
        return [len(list(leaves(state))), *((part.shape, part.nbytes) for part in session.run)]

    young = m.session(seed=1)
    for _ in range(10):
        report(young)
    expected_size, expected_work = size(young), work(young)
    assert min(expected_work) > 100, "bytecodes are being counted"
    assert len(expected_work) == (1 if manager == "independent" else 2)

    run, rng = young.run, np.random.default_rng(5)
    for _ in range(STEPS):
        u = rng.uniform(1e-9, 1.0, (1, m.uniforms))
        _, run = step(m, run, np.zeros((1, 2)), run.at_s + 1.0, u)
    # The rest of the way to a million is one number that is larger.
    for reports in (int(run.reports[0]), 10**6):
        fields = {**as_state(run), "reports": reports, "easy": reports - int(run.hard[0])}
        old = Session.from_state(m, {**young.to_state(), "run": fields}, seed=2)
        assert work(old) == expected_work
        assert size(old) == expected_size
        assert old.run.reports[0] == reports + 40 > STEPS


def test_the_counter_sees_work_that_grows_with_the_trace() -> None:
    # A prediction that keeps what it saw and goes through it again: what must not happen.
    seen: list[float] = []

    def hoarding(past: Sequence[Past], at_s: float) -> Sequence[float] | None:
        seen.append(at_s)
        return [sum(1.0 for at in seen if at < 0.0), 0.0]

    m = PredictiveMechanism(Privacy(1.0, 1.0), AlwaysNoise(1e-8), Plane(), lift(hoarding))
    session, counter = m.session(seed=1), Counter()
    at = datetime(2024, 1, 1, tzinfo=UTC)
    work = [counter.of(lambda: session.report((0.0, 0.0), at)) for _ in range(20)]
    assert (np.diff(work) > 0).all()
