"""Spark jobs that pay from a ledger in PostgreSQL, beside a gateway; one is killed on its way."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hereish
from hereish.gateway.admin import accounts
from hereish.gateway.ledger.jobs import JobError, LedgerJob, list_jobs
from hereish.gateway.ledger.ledger import Ledger
from hereish.gateway.ledger.models import Fix
from hereish.gateway.paths import GatewayPaths
from hereish.traces.key_file import write_key_file
from tests.support.postgres import postgres
from tests.support.spark import QUIETLY, need_spark, spark_session
from tests.support.stage import HELSINKI, paths_in, policy, shown
from tests.traces.test_arrow import people

need_spark()
USERS = 8


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, GatewayPaths]]:
    folder = tmp_path_factory.mktemp("jobs")
    write_key_file(folder / "draws")
    pq.write_table(people(USERS, 40), folder / "in.parquet")
    with postgres() as cluster:
        yield folder, paths_in(folder, cluster.fresh("jobs"))


def begin(stage: tuple[Path, GatewayPaths], job: str, out: str) -> subprocess.Popen[str]:
    folder, where = stage
    words = [
        *("sanitize", folder / "in.parquet", "-o", folder / out, "--json", "--quiet"),
        *("--engine", "spark", "--master", "local[2]", "--key-file", folder / "draws"),
        *("--ledger", where.database, "--job", job, "--accuracy", "3km"),
        *("--ledger-key", where.key_file, "--ledger-mark", where.mark_file),
    ]
    command = [sys.executable, "-m", "hereish", *map(str, words)]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.Popen(  # noqa: S603  # our own
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def end(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out)


def costs(path: Path) -> dict[tuple[str, Any], float]:
    """By user and day of UTC."""
    spent: dict[tuple[str, Any], float] = {}
    for row in pq.read_table(path).to_pylist():
        key = (row["user"], row["time"].date())  # Spark writes times in UTC
        spent[key] = spent.get(key, 0.0) + row["cost"]
    return spent


def test_a_killed_job_has_published_nothing_and_goes_on_under_its_name(
    stage: tuple[Path, GatewayPaths],
) -> None:
    with contextlib.closing(Ledger.open(stage[1])) as ledger:
        check_killed_job(stage, ledger)


def check_killed_job(stage: tuple[Path, GatewayPaths], ledger: Ledger) -> None:
    folder, _ = stage
    total = policy().build().bound.total
    for number in range(USERS - 1):  # one is not known
        accounts.add_user(ledger, f"user {number:03}", policy(preset="whole-day"))
    token = shown(accounts.new_token(ledger, "user 000", "phone"))
    first = pq.read_table(folder / "in.parquet")["time"].cast(pa.timestamp("us", "UTC")).to_pylist()
    day = min(first[:40]).astimezone(UTC).date()
    noon_s = datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()
    [own] = ledger.report(token, [Fix(*HELSINKI, noon_s)]).answers
    assert own.release is not None

    killed = begin(stage, "nightly", "out.parquet")
    deadline_s = time.monotonic() + 600.0
    while not list(folder.glob("out.parquet.unpaid-*/rows/part-*")):
        assert killed.poll() is None, killed.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (folder / "out.parquet").exists()
    [job] = list_jobs(ledger)
    assert job.settled_s is None, "killed before it has paid"
    assert (job.users, job.taken) == (USERS - 1, job.reserved)
    [late] = ledger.report(token, [Fix(*HELSINKI, noon_s + 3600.0)]).answers
    assert late.release is not None
    assert late.release.cost == 0.0, "what the job has reserved counts as spent"

    said = end(begin(stage, "nightly", "out.parquet"))
    assert said["job"]["name"] == "nightly"
    [refusal] = said["job"]["refused"]
    assert refusal.startswith("not a user of the ledger")
    [job] = list_jobs(ledger)
    spent = costs(folder / "out.parquet")
    assert job.settled_s is not None
    assert job.taken == pytest.approx(sum(spent.values()), rel=1e-9)
    assert spent["user 000", day] + own.release.cost <= total
    assert all(cost <= total for cost in spent.values())
    assert f"user {USERS - 1:03}" not in {user for user, _ in spent}


@QUIETLY
def test_two_jobs_share_budgets_and_one_is_published_again_only_if_it_is_the_same(
    tmp_path: Path,
) -> None:
    from hereish.spark import sanitize
    from hereish.spark.jobs import reserve_all, settle

    write_key_file(tmp_path / "draws")
    privacy = hereish.Privacy(math.log(10), 100)
    m = hereish.fixed_rate(privacy, 8, window=hereish.Day("UTC"))
    with (
        contextlib.closing(Ledger.open(paths_in(tmp_path))) as ledger,
        spark_session(tmp_path, **{"spark.sql.shuffle.partitions": "2"}) as spark,
    ):
        add = accounts.NewUsers(ledger, policy(preset="whole-day"))

        def run(name: str, seed: int, to: str) -> None:
            job = LedgerJob.begin(ledger, name, m, repeats=True, add_users=add)
            df = spark.createDataFrame(people(4, 40, seed=seed))
            granted = reserve_all(df, m, job, user="user", time="time")
            out = sanitize(
                df, m, user="user", time="time", lat="lat", lon="lon",
                key_file=tmp_path / "draws", granted=granted,
            )  # fmt: skip
            out.write.parquet(str(tmp_path / to))
            staged = spark.read.parquet(str(tmp_path / to))
            settle(staged, m, job, user="user", time="time")

        run("one", 1, "one")
        run("other", 1, "other")
        run("one", 1, "again")
        with pytest.raises(JobError, match="not the same"):
            run("one", 2, "changed")
    spent = {name: costs(tmp_path / name) for name in ("one", "other", "again")}
    assert spent["again"] == spent["one"]
    assert 0.0 < sum(spent["other"].values()) < sum(spent["one"].values())
    for key, cost in spent["one"].items():
        assert cost + spent["other"].get(key, 0.0) <= privacy.eps_per_m
