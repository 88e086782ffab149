"""PostgreSQL goes away under load, as if the power went, and comes back."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from hereish.gateway.ledger.ledger import Ledger
from tests.support.hammer import audit
from tests.support.hammering import Crowd, launching, people, publish, status, until
from tests.support.postgres import postgres
from tests.support.stage import paths_in

RESTARTS = 5


def test_a_gateway_outlives_its_postgresql(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(5)  # noqa: S311  # load, not secrets
    with postgres() as cluster, launching() as launcher:
        where = paths_in(tmp_path, cluster.fresh("restarts"))
        ledger = Ledger.open(where)
        persons = people(ledger, 2, 2, rng)
        ledger.close()
        ports = [launcher.listen(), launcher.listen()]
        pids = [launcher.serve(where, port) for port in ports]
        assert [status(port) for port in ports] == [200, 200]
        crowd = Crowd(persons, ports, rng)
        with crowd.sending():
            for _ in range(RESTARTS):
                crowd.until_answered(200, 20)
                cluster.stop("immediate")
                crowd.until_answered(503, 5)
                # They look once a second, however often they are asked.
                until(lambda: [status(port) for port in ports] == [503, 503], "both say so")
                cluster.start()
            crowd.until_answered(200, 20)
        # By themselves: nobody started them again.
        until(lambda: [status(port) for port in ports] == [200, 200], "both are ready")
        crowd.resend_all(ports[0])
        crowd.resend_all(ports[1])
        crowd.close()
        counts = audit(where, crowd.told)
        assert [launcher.end(pid) for pid in pids] == [0, 0]
    publish("PostgreSQL restarted", crowd, counts, record_property, restarts=RESTARTS)
    assert set(crowd.statuses) == {200, 503}
    assert counts.acknowledged == counts.reports
