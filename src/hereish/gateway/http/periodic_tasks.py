"""What runs beside the requests: the high-water mark to the disk, usage counts to the ledger."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from hereish.gateway.http.services import Services
from hereish.gateway.observability.logs import log_event

_PERIOD_S = 1.0
_FLUSH_S = 5.0


class PeriodicTasks:
    """A thread that runs small tasks every second, between `start` and `stop`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="periodic-tasks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._try(self._flush_usage)

    def _run(self) -> None:
        since_flush_s = 0.0
        while not self._stopping.wait(_PERIOD_S):
            self._try(self._services.ledger.catch_up)
            self._try(self._services.ledger.mark.sync)
            since_flush_s += _PERIOD_S
            if since_flush_s >= _FLUSH_S:
                since_flush_s = 0.0
                self._try(self._flush_usage)

    def _flush_usage(self) -> None:
        self._services.usage.flush(self._services.ledger)

    @staticmethod
    def _try(task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001  # the next run may succeed
            log_event("periodic task failed", logging.WARNING, kind=type(error).__name__)
