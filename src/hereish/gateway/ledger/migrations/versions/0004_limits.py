"""Which limit of a policy was full, where nothing was left."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Not in batch mode: SQLite would copy the table, and its numbers would begin anew.
    op.add_column("entries", sa.Column("full_limit", sa.Integer(), nullable=True))
