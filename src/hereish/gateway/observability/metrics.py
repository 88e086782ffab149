"""Prometheus metrics: counts and times. No user, no device, no place."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "hereish_requests", "Requests answered.", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "hereish_request_seconds",
            "How long they took.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.points = Counter(
            "hereish_points",
            "Points that came in, by what became of them.",
            ["outcome"],
            registry=self.registry,
        )
        self.unusable = Counter(
            "hereish_points_unusable",
            "Points that can never be taken, by protocol and by why.",
            ["protocol", "reason"],
            registry=self.registry,
        )
        self.waiting = Gauge(
            "hereish_outbox_waiting", "Releases not yet forwarded.", registry=self.registry
        )
        self.ledger_up = Gauge(
            "hereish_ledger_up", "1 if the ledger can be used.", registry=self.registry
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
