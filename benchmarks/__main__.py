"""Measure what hereish costs, as ratios: python -m benchmarks [PART …] [--write]

`make bench` runs all parts; `--write` puts the table into docs/benchmarks.md. Times of one run are
compared only with each other: the shortest of several rounds, in which the things compared take
turns. All but the gateway, streams that are killed, workers, file_jobs, and the half of
engine_scaling that has two, stay on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.attack import attack_on_a_month
from benchmarks.case_study import case_study
from benchmarks.domains import domains
from benchmarks.files import csv_files, file_jobs, files, small_files, startup
from benchmarks.fresh_processes import fresh_processes
from benchmarks.gateway import gateway
from benchmarks.mechanism import (
    growth,
    import_time,
    keyed_draws,
    live,
    memory,
    nested,
    scaling,
    throughput,
)
from benchmarks.mobility import mobility
from benchmarks.predictions import predictions
from benchmarks.processes import ALL_CORES, use_cores
from benchmarks.results import Result, format_table, update_page
from benchmarks.roads import road_prediction, road_steps
from benchmarks.spark import engine_memory, engines
from benchmarks.spark_scaling import engine_scaling
from benchmarks.spark_streams import stream_kills, streams
from benchmarks.whole_days import (
    whole_day_batch,
    whole_day_growth,
    whole_day_live,
    whole_day_lone,
)
from benchmarks.workers import workers

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PARTS = {
    part.__name__: part
    for part in (
        *(
            throughput,
            fresh_processes,
            workers,
            keyed_draws,
            memory,
            live,
            nested,
            growth,
            scaling,
            import_time,
        ),
        *(whole_day_batch, whole_day_lone, whole_day_live, whole_day_growth),
        *(predictions, mobility, road_steps, road_prediction),
        *(startup, files, csv_files, file_jobs, small_files),
        *(engines, engine_memory, engine_scaling, streams, stream_kills),
        *(case_study, domains, attack_on_a_month, gateway),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the results into docs/benchmarks.md; those of parts that did not run stay",
    )
    options = parser.parse_args()
    if unknown := [name for name in options.part if name not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)} (parts are {', '.join(PARTS)})")
    use_cores(frozenset(sorted(ALL_CORES)[:1]))
    results: list[Result] = []
    for name in options.part or PARTS:
        print(f"… {name}", flush=True)
        results += PARTS[name]()
    print(format_table(results))
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(update_page(page, results, keep=bool(options.part)), encoding="utf-8")
        print(f"written to {PAGE.name}")


if __name__ == "__main__":
    main()
