"""What all tests share: the pages are tests too, which are quick, slow or begun first, a summary.

The examples of README and docs are tests: each page is run from top to bottom. At the end of a run
the counts of the tests under faults are printed, since a number says more than a dot.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = Path(__file__).parent
# For the workers and all that they start. Cores are taken already, so further threads for matrices
# only get in the way. And the C library would give the memory of large arrays back to the system,
# to ask for it again at once, which takes up to half of the time of statistical tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
for setting in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
    os.environ.setdefault(setting, str(2**30))
# All as patterns of paths. `make check` runs the quick ones: some of every folder, in seconds.
QUICK = (
    "README.md",
    "tests/test_former_names.py",
    "tests/test_imports.py",
    "tests/test_lbs.py",
    "tests/test_names.py",
    "tests/test_project.py",
    "tests/test_public.py",
    "tests/test_synthetic.py",
    "tests/audit/test_geometry.py",
    "tests/cli/test_units.py",
    "tests/client/test_client_*.py",
    "tests/core/test_*.py",
    "tests/domains/test_counts.py",
    "tests/domains/test_meter.py",
    "tests/evaluation/test_break_even.py",
    "tests/evaluation/test_day_metrics.py",
    "tests/evaluation/test_days.py",
    "tests/gateway/admin/test_destinations.py",
    "tests/gateway/http/protocols/test_o[vw]*.py",
    "tests/roads/test_building.py",
    "tests/roads/test_graph.py",
    "tests/traces/test_validate.py",
    "tests/traces/formats/test_geojson_*.py",
)
# Tests that try very many cases, wait for clocks, or start many programs: `make coverage` does
# without them.
SLOW = (
    "docs/*.md",
    "tests/test_demo.py",
    "tests/test_forecast*.py",
    "tests/test_lbs_promise.py",
    "tests/attack/test_night_claims.py",
    "tests/audit/test_auditing.py",
    "tests/cli/test_evaluate_c*.py",
    "tests/cli/test_forecast_text.py",
    "tests/core/contract/test_bound.py",
    "tests/core/contract/test_constant_*.py",
    "tests/core/contract/test_paced_budgets.py",
    "tests/core/contract/test_same_bits*.py",
    "tests/core/exact/test_*.py",
    "tests/core/statistical/test_*.py",
    "tests/docs/test_[ps]*.py",
    "tests/domains/test_exact_runs.py",
    "tests/evaluation/test_*claims.py",
    "tests/evaluation/test_days_geolife.py",
    "tests/evaluation/test_preset_tuning.py",
    "tests/gateway/forwarding/test_[b-z]*.py",
    "tests/roads/test_lemma1_on_roads.py",
    "tests/roads/test_road_noise.py",
    "tests/spark/test_connect.py",
    "tests/spark/test_jobs.py",
    "tests/spark/test_leaks.py",
    "tests/spark/test_replays.py",
    "tests/spark/test_stream*.py",
    "tests/gateway/http/test_endless_retries.py",
    "tests/gateway/http/test_hostile_*.py",
    "tests/gateway/http/test_odd_clients.py",
    "tests/gateway/http/test_proxies.py",
    "tests/gateway/http/test_slow_uplinks.py",
    "tests/gateway/ledger/test_eras.py",
    "tests/gateway/ledger/test_faults_*.py",
    "tests/gateway/ledger/test_group_commit*.py",
    "tests/gateway/ledger/test_migrations.py",
    "tests/gateway/ledger/test_storage.py",
    "tests/gateway/ledger/test_whole_day*.py",
    "tests/traces/formats/test_delimited_*.py",
    "tests/traces/formats/test_fuzz_*.py",
    "tests/traces/formats/test_gpx_*.py",
    "tests/traces/test_real_*.py",
    "tests/viewer/test_show_browser.py",
)
# Those that take longest, in this order: a worker that came to one of them last would keep all
# others waiting.
LONGEST = (
    "tests/docs/test_pages.py",
    "tests/spark/test_stream_replays.py",
    "tests/spark/test_replays.py",
    "tests/spark/test_leaks.py",
    "tests/evaluation/test_day_claims.py",
    "tests/evaluation/test_mobility_claims.py",
    "tests/cli/test_evaluate_leaderboard.py",
    "tests/gateway/ledger/test_faults_kill.py",
    "tests/spark/test_files.py",
    "tests/spark/test_stream.py",
    "tests/spark/test_batch.py",
    "tests/traces/test_real_files.py",
    "tests/cli/test_forecast_text.py",
    "tests/evaluation/test_*tuning.py",
    "tests/core/statistical/test_black_box_*.py",
    "tests/attack/test_night_claims.py",
    "tests/audit/test_auditing.py",
    "tests/gateway/ledger/test_faults_*.py",
    "tests/cli/test_*.py",
    "tests/docs/test_site.py",
    "tests/spark/test_*.py",
    "tests/evaluation/test_*.py",
    "tests/gateway/*/test_*.py",
)

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md"],
).pytest()


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("hereish")
    group.addoption("--quick", action="store_true", help="only the tests of conftest.QUICK")
    group.addoption("--without-slow", action="store_true", help="all but those of conftest.SLOW")


def pytest_ignore_collect(collection_path: Path, config: Any) -> bool | None:
    """Leave a file out before it is imported, which takes time as well."""
    if collection_path.is_dir() or not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT)
    quick = any(path.match(pattern) for pattern in QUICK)
    slow = any(path.match(pattern) for pattern in SLOW)
    left_out = (config.getoption("--quick") and not quick) or (
        config.getoption("--without-slow") and slow
    )
    return True if left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; the others stay as they are."""

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(ROOT)
        return next((i for i, one in enumerate(LONGEST) if path.match(one)), len(LONGEST))

    items.sort(key=rank)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Two more than there are cores if everything is run: some tests wait for clocks and disks."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if not whole or config.getoption("--quick") or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 2 + (os.cpu_count() or 1)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = [
        line
        for report in terminalreporter.getreports("passed")
        for name, line in report.user_properties
        if name == "counts"
    ]
    if lines:
        terminalreporter.section("counts under faults")
        for line in lines:
            terminalreporter.write_line(line)
