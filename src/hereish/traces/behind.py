"""One thing done in another thread, while what comes next is made ready."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Behind:
    """Runs one call after the other, each while its caller goes on."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._running: Future[None] | None = None

    def run(self, call: Callable[[], None]) -> None:
        """Begin a call once the last one is over. Raises what that has raised."""
        self.wait()
        self._running = self._thread.submit(call)

    def wait(self) -> None:
        """Wait until nothing runs. Raises what the last call has raised, once."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """The same at the end: an error here came first, whatever came of the next rows."""
        self._thread.shutdown()
        self.wait()
