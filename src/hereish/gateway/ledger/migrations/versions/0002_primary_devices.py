"""Which device of a user counts, and how long it must be silent before others do."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Not in batch mode: SQLite would copy the table and drop the old one, and that deletes all
    # that refers to it.
    op.add_column("users", sa.Column("chosen_device", sa.Text(), nullable=True))
    op.add_column("users", sa.Column("primary_device", sa.Text(), nullable=True))
    op.add_column("users", sa.Column("silence_s", sa.Double(), nullable=True))
    op.execute(
        "UPDATE users SET primary_device = (SELECT device FROM tokens "
        "WHERE tokens.user_id = users.id AND tokens.revoked_s IS NULL "
        "ORDER BY tokens.created_s DESC, tokens.id LIMIT 1)"
    )
