"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("era", sa.Text(), nullable=False),
        sa.Column("key_check", sa.LargeBinary(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("forgotten", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("closed_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
    )
    op.create_table(
        "removed",
        sa.Column("name_key", sa.LargeBinary(), nullable=False),
        sa.Column("removed_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name_key", name=op.f("pk_removed")),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("disabled_s", sa.Double(), nullable=True),
        sa.Column("policy_id", sa.Integer(), nullable=True),
        sa.Column("next_policy_id", sa.Integer(), nullable=True),
        sa.Column("state", sa.Text(), nullable=True),
        sa.Column("forwards", sa.Integer(), nullable=False),
        sa.Column("closed_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("name", name=op.f("uq_users_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "counts",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("points", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_counts_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "device", "day", name=op.f("pk_counts")),
    )
    op.create_table(
        "destinations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("leased_until_s", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_try_s", sa.Double(), nullable=False),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_destinations_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_destinations")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("destinations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_destinations_user_id"), ["user_id"], unique=False)

    op.create_table(
        "entries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("made_s", sa.Double(), nullable=False),
        sa.Column("lat", sa.Double(), nullable=True),
        sa.Column("lon", sa.Double(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("cost", sa.Double(), nullable=False),
        sa.Column("accuracy_m", sa.Double(), nullable=True),
        sa.Column("eps_test", sa.Double(), nullable=False),
        sa.Column("eps_noise", sa.Double(), nullable=False),
        sa.Column("threshold_m", sa.Double(), nullable=True),
        sa.Column("window", sa.BigInteger(), nullable=True),
        sa.Column("policy_id", sa.Integer(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_entries_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_entries")),
        sa.UniqueConstraint("user_id", "at_s", name=op.f("uq_entries_user_id_at_s")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "policies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_policies_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint("user_id", "version", name=op.f("uq_policies_user_id_version")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "receipts",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("entry_at_s", sa.Double(), nullable=True),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("own", sa.Boolean(), nullable=False),
        sa.Column("made_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_receipts_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "key", name=op.f("pk_receipts")),
    )
    with op.batch_alter_table("receipts", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_receipts_made_s"), ["made_s"], unique=False)

    op.create_table(
        "tokens",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_s", sa.Double(), nullable=False),
        sa.Column("revoked_s", sa.Double(), nullable=True),
        sa.Column("passphrase", sa.LargeBinary(), nullable=True),
        sa.Column("show_release", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_tokens_user_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    with op.batch_alter_table("tokens", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_tokens_user_id"), ["user_id"], unique=False)

    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("destination_id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Double(), nullable=False),
        sa.Column("lat", sa.Double(), nullable=False),
        sa.Column("lon", sa.Double(), nullable=False),
        sa.Column("accuracy_m", sa.Double(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("tid", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["destination_id"],
            ["destinations.id"],
            name=op.f("fk_outbox_destination_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_outbox_destination_id_id"), ["destination_id", "id"], unique=False
        )
