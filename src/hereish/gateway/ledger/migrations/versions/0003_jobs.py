"""Jobs that pay from the same budgets as reports."""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("mechanism", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("settled_s", sa.Double(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_jobs")),
    )
    op.create_table(
        "reservations",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("window", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("policy_id", sa.Integer(), nullable=False),
        sa.Column("reserved", sa.Double(), nullable=False),
        sa.Column("spent", sa.Double(), nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(
            ["job"], ["jobs.name"], name=op.f("fk_reservations_job"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_reservations_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "window", "job", name=op.f("pk_reservations")),
    )
    op.create_index(op.f("ix_reservations_job"), "reservations", ["job"])
    # Not in batch mode: SQLite would copy the table and drop the old one, and that deletes all
    # that refers to it.
    op.add_column(
        "ledger", sa.Column("job_number", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.add_column("ledger", sa.Column("pruned_s", sa.Double(), nullable=True))
    op.add_column("users", sa.Column("policy_since_s", sa.Double(), nullable=True))
    op.add_column("users", sa.Column("reserved_s", sa.Double(), nullable=True))
    # Nobody has written down what was pruned, or when a policy followed another: not after the
    # newest report, so that reports which are late go on.
    pruned = sa.text("UPDATE ledger SET pruned_s = :now WHERE forgotten > 0")
    op.get_bind().execute(pruned, {"now": time.time()})
    op.execute(
        "UPDATE users SET policy_since_s = "
        "(SELECT max(at_s) FROM entries WHERE entries.user_id = users.id) WHERE EXISTS "
        "(SELECT 1 FROM policies WHERE policies.user_id = users.id AND policies.version > 1)"
    )
