"""Whether a promise holds, seen from outside: lower bounds on what a mechanism gives away."""

from hereish.audit.auditing import Audit, PairResult, audit, pairs_for, report_times
from hereish.audit.bounds import loss_at_least, smallest_loss
from hereish.audit.mechanisms import BlackBox, load_mechanism, run_batch
from hereish.audit.pair_audit import Finding, Pair, PairAudit, ReleasedRuns, audit_pair
from hereish.audit.pairs import default_pairs, moved, on_globe

__all__ = [
    "Audit",
    "BlackBox",
    "Finding",
    "Pair",
    "PairAudit",
    "PairResult",
    "ReleasedRuns",
    "audit",
    "audit_pair",
    "default_pairs",
    "load_mechanism",
    "loss_at_least",
    "moved",
    "on_globe",
    "pairs_for",
    "report_times",
    "run_batch",
    "smallest_loss",
]
