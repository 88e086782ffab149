"""Sines and cosines with 60 digits, in a context of that precision."""

from __future__ import annotations

from decimal import Decimal

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628621")


def sine_cosine(angle: Decimal) -> tuple[Decimal, Decimal]:
    """Taylor's series of a 64th of the angle, doubled six times."""
    term, sums, n = Decimal(1), [Decimal(0), Decimal(0)], 0
    while abs(term) > Decimal("1e-65"):
        sums[n % 2] += term if n % 4 < 2 else -term
        n += 1
        term *= angle / 64 / n
    cosine, sine = sums
    for _ in range(6):
        sine, cosine = 2 * sine * cosine, cosine * cosine - sine * sine
    return sine, cosine
