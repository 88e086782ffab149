"""Workers that are processes: the same bits, the same errors, and none that goes on afterwards."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hereish
from hereish import PartError, sanitize
from hereish.core import batch, worker_processes
from hereish.core.batch_results import Results
from hereish.core.forks import claimed_numbers
from hereish.core.step import decide, prepare
from hereish.core.worker_processes import guided_blocks
from tests.core.contract.test_workers import (
    LENGTHS,
    MECHANISMS,
    RAGGED,
    WORKERS,
    bits,
    noise_that_grows_too_large,
    of_case,
    sources,
)
from tests.support.processes import children, open_files
from tests.support.whole_days import people

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are forked on Linux alone"
)
BY_OTHERS = ("key", "uniforms")  # those of a seed are drawn in one process


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What forks have sent. They are made whatever threads others have left; none is left over."""
    sent: list[str] = []
    monkeypatch.setattr(batch, "can_fork", lambda: True)
    receive = worker_processes._GatheredResults._receive

    def noting(self: Any, ready: list[Any]) -> None:
        for messages in ready:
            sent.append("message")
            receive(self, [messages])

    monkeypatch.setattr(worker_processes._GatheredResults, "_receive", noting)
    started, files = children(), open_files()
    yield sent
    assert children() <= started, "a process is left"
    assert open_files() <= files, "a file is left open"


@pytest.fixture
def idle_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks step all blocks: otherwise this process might be done before they have begun."""
    parent, claimed = os.getpid(), claimed_numbers
    monkeypatch.setattr(
        worker_processes,
        "claimed_numbers",
        lambda unclaimed: iter(()) if os.getpid() == parent else claimed(unclaimed),
    )


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_any_number_of_processes_gives_the_same_bits(
    name: str, lengths: str, forks: list[str], request: pytest.FixtureRequest
) -> None:
    m = MECHANISMS[name]
    data = of_case(m, LENGTHS[lengths])
    traces = len(data.offsets) - 1
    alone = {
        source: sanitize(m, *data, **sources(m, data)[source], run=m.run(traces))
        for source in BY_OTHERS
    }
    assert not forks
    for source, workers in ((source, workers) for source in BY_OTHERS for workers in WORKERS):
        given = sources(m, data)[source]
        out = sanitize(m, *data, **given, run=m.run(traces), workers=workers)
        assert bits(out) == bits(alone[source]), f"{source}, {workers} workers"
    request.getfixturevalue("idle_parent")
    for source in BY_OTHERS:
        forks.clear()
        given = sources(m, data)[source]
        out = sanitize(m, *data, **given, run=m.run(traces), workers=3)
        assert bits(out) == bits(alone[source])
        assert len(forks) > 3, "or nothing was compared"
        plain = sanitize(m, *data, **given, workers=3)
        assert plain.value.tobytes() == alone[source].value.tobytes()
        assert plain.spent.tobytes() == alone[source].spent.tobytes()


@pytest.mark.parametrize("name", ["fixed rate", "whole day"])
def test_blocks_of_the_usual_size_give_the_same_bits(
    name: str, forks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "POINTS", batch.LANES)
    m = MECHANISMS[name]
    lengths = np.random.default_rng(3).integers(0, 5, 2 * batch.LANES)
    data = people(m.space, lengths.tolist())
    given = sources(m, data)["key"]
    alone = sanitize(m, *data, **given, run=m.run(len(lengths)))
    out = sanitize(m, *data, **given, run=m.run(len(lengths)), workers=2)
    assert bits(out) == bits(alone)
    assert forks


@pytest.mark.usefixtures("small_parts", "idle_parent")
def test_what_a_fork_sends_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    m = MECHANISMS["fixed rate"]
    data = of_case(m, RAGGED)
    given = sources(m, data)["key"]
    alone = sanitize(m, *data, **given)
    write: Callable[..., None] = Results.write

    def swapped(self: Results, chunk: Any, traces: Any, targets: Any, most: Any) -> None:
        write(self, chunk, traces, targets | {"eps_test": targets["eps_noise"]}, most)

    monkeypatch.setattr(Results, "write", swapped)
    assert bits(sanitize(m, *data, **given, workers=3)) != bits(alone)


@pytest.mark.usefixtures("small_parts", "idle_parent")
def test_secure_numbers_are_drawn_anew_in_each_process(forks: list[str]) -> None:
    m = MECHANISMS["fixed rate"]
    sanitize(m, np.zeros((1, 2)), [0.0], [0, 1])  # leaves numbers for the next one to use
    points = np.tile([60.17, 24.94], (400, 1))
    out = sanitize(m, points, np.zeros(400), np.arange(401), workers=4)
    assert out.private
    assert forks
    assert len(np.unique(out.value, axis=0)) == 400, "and none twice"


@pytest.mark.usefixtures("small_parts", "idle_parent")
@pytest.mark.parametrize("source", BY_OTHERS)
def test_a_step_that_fails_fails_the_call_with_the_same_words(source: str) -> None:
    m = noise_that_grows_too_large()
    data = of_case(m, RAGGED)
    given = sources(m, data)[source]
    with pytest.raises(PartError, match="too large for the grid") as alone:
        sanitize(m, *data, **given)
    with pytest.raises(PartError) as several:
        sanitize(m, *data, **given, workers=3)
    assert str(several.value) == str(alone.value)
    assert several.value.__context__ is None


def _in_a_fork(act: Callable[[], object], call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, before which a fork does something."""
    parent = os.getpid()

    def acting(*given: Any, **named: Any) -> Any:
        if os.getpid() != parent:
            act()
        return call(*given, **named)

    return acting


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("small_parts", "idle_parent")
def test_a_process_that_is_killed_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    m = MECHANISMS["fixed rate"]
    data = of_case(m, RAGGED)
    for name, call in (("prepare", prepare), ("decide", decide)):
        with monkeypatch.context() as patched:
            patched.setattr(batch, name, _in_a_fork(_die, call))
            with pytest.raises(hereish.HereishError, match="ended before its traces were done"):
                sanitize(m, *data, workers=3)


@pytest.mark.usefixtures("small_parts", "idle_parent")
def test_a_process_that_is_killed_in_the_middle_of_a_message_fails_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def half(self: Any, *given: Any) -> None:
        os.write(self._messages.fileno(), struct.pack("!i", 1000) + b"half of it")
        _die()

    monkeypatch.setattr(worker_processes._SentResults, "write", half)
    m = MECHANISMS["fixed rate"]
    with pytest.raises(hereish.HereishError, match="ended before its traces were done"):
        sanitize(m, *of_case(m, RAGGED), workers=3)


ORPHAN = """
import os, signal, sys, time
import numpy as np
import hereish
from hereish.core import batch, worker_processes

batch.LANES, batch.POINTS, batch.LEAST_LANES = 16, 60, 1
parent, send = os.getpid(), worker_processes._SentResults.write

def write(self, *given):
    os.kill(parent, signal.SIGKILL)
    while os.getppid() == parent:
        time.sleep(0.01)
    self._messages.send(bytes(1 << 22))  # more than any pipe holds
    print("it was taken", flush=True)

worker_processes._SentResults.write = write
worker_processes.claimed_numbers = (
    lambda unclaimed, claimed=worker_processes.claimed_numbers:
    iter(()) if os.getpid() == parent else claimed(unclaimed)
)
mechanism = hereish.fixed_rate(hereish.Privacy(level=2.3, radius_m=100), 20)
hereish.sanitize(mechanism, np.zeros((400, 2)), np.zeros(400), np.arange(401), workers=3)
"""


def test_a_process_without_its_parent_ends() -> None:
    # Its end of this pipe is open until the last of them has ended.
    command = [sys.executable, "-c", ORPHAN]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603  # ours
    assert ran.returncode == -signal.SIGKILL
    assert (ran.stdout, ran.stderr) == ("", "")


@pytest.mark.usefixtures("small_parts", "idle_parent")
def test_nobody_notices_how_a_process_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    m = MECHANISMS["fixed rate"]
    data = of_case(m, RAGGED)

    def fail() -> None:
        raise RuntimeError("60.16992, 24.93844")

    monkeypatch.setattr(batch, "decide", _in_a_fork(fail, decide))
    with pytest.raises(hereish.HereishError) as found:
        sanitize(m, *data, workers=2)
    out, err = capfd.readouterr()
    assert "60.1" not in f"{out}{err}{found.value!r}{found.value.__context__!r}"


@pytest.mark.usefixtures("small_parts", "idle_parent", "interruptible")
def test_an_interrupt_ends_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    m = MECHANISMS["fixed rate"]
    data = of_case(m, RAGGED)
    sent: list[bool] = []

    def interrupt() -> None:
        if not sent:
            sent.append(True)
            os.kill(os.getppid(), signal.SIGINT)

    monkeypatch.setattr(batch, "decide", _in_a_fork(interrupt, decide))
    with pytest.raises(KeyboardInterrupt):
        sanitize(m, *data, workers=2)


@pytest.mark.usefixtures("small_parts")
def test_without_room_for_processes_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    m = MECHANISMS["fixed rate"]
    data = of_case(m, RAGGED)
    given = sources(m, data)["key"]
    alone = sanitize(m, *data, **given)

    def refused() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    assert bits(sanitize(m, *data, **given, workers=3)) == bits(alone)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("room", range(7))
def test_without_room_for_pipes_there_are_fewer_processes(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = MECHANISMS["fixed rate"]
    data = of_case(m, RAGGED)
    given = sources(m, data)["key"]
    alone = sanitize(m, *data, **given)
    pipe, made = os.pipe, list[int]()

    def limited() -> tuple[int, int]:
        made.append(0)
        if len(made) > room:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipe()

    monkeypatch.setattr(os, "pipe", limited)
    assert bits(sanitize(m, *data, **given, workers=3)) == bits(alone)
    assert made


class LateError(TimeoutError):
    """What many programs raise when an alarm goes off."""


@pytest.mark.usefixtures("small_parts", "idle_parent")
def test_an_alarm_of_the_caller_is_no_failure_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    m = MECHANISMS["fixed rate"]

    def too_late(*_: object) -> None:
        raise LateError

    def half(self: Any, *given: Any) -> None:
        os.write(self._messages.fileno(), struct.pack("!i", 1000) + b"half of it")
        time.sleep(60)

    monkeypatch.setattr(worker_processes._SentResults, "write", half)
    before = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(LateError):
            sanitize(m, *of_case(m, RAGGED), workers=2)
    finally:
        signal.signal(signal.SIGALRM, before)


BROKEN_PIPE = """
import os, signal, sys, time
import numpy as np
import hereish
from hereish.core import batch, worker_processes

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as many programs of the command line do
batch.LANES, batch.POINTS, batch.LEAST_LANES = 16, 60, 1
parent, send = os.getpid(), worker_processes._SentResults.write

def write(self, *given):
    send(self, *given)
    os.kill(os.getpid(), signal.SIGKILL)

def claimed(unclaimed, claimed=worker_processes.claimed_numbers):
    if os.getpid() == parent:
        time.sleep(1.0)
        return iter(())
    return claimed(unclaimed)

worker_processes._SentResults.write, worker_processes.claimed_numbers = write, claimed
mechanism = hereish.fixed_rate(hereish.Privacy(level=2.3, radius_m=100), 20)
try:
    hereish.sanitize(mechanism, np.zeros((400, 2)), np.zeros(400), np.arange(401), workers=2)
except hereish.HereishError as error:
    print(error)
"""


def test_a_process_that_is_killed_does_not_end_a_program_that_minds_broken_pipes() -> None:
    command = [sys.executable, "-c", BROKEN_PIPE]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)  # noqa: S603  # ours
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "ended before its traces were done" in ran.stdout


def test_a_script_is_forked_and_one_with_threads_is_not() -> None:
    program = """\
import threading, time
import hereish.core.forks as processes
print(processes.can_fork())
threading.Thread(target=time.sleep, args=(1,)).start()
print(processes.can_fork())
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # ours
    assert ran.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_blocks_are_all_lanes_once_and_end_small(workers: int) -> None:
    ragged = np.sort(np.random.default_rng(1).integers(1, 99, 70_001))[::-1]
    one_long = np.array([10_000_000] + [1] * 30_000)
    for counts in (np.full(200_000, 30), ragged, one_long, np.ones(1), np.zeros(0)):
        blocks = guided_blocks(counts.astype(np.int64), workers, 24_000, 6_000)
        lanes = [lane for block in blocks for lane in range(block.start, block.stop)]
        assert lanes == list(range(len(counts)))
        assert all(block.stop - block.start < 24_000 + 6_000 for block in blocks)
        if len(counts) > 100_000:
            assert blocks[-1].stop - blocks[-1].start < 12_000


def test_numbers_of_blocks_fit_a_pipe() -> None:
    blocks = guided_blocks(np.ones(1_000_000, dtype=np.int64), 2, 24_000, 1)
    assert len(blocks) < worker_processes.MOST_BLOCKS + 1
    assert 4 * worker_processes.MOST_BLOCKS < 1 << 16
