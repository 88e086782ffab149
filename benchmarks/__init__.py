"""Benchmarks: what is measured, against what, in one run. `make bench` prints the ratios."""
