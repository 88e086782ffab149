"""How Alembic reaches the ledger: `Database.upgrade` hands over a connection in a transaction."""

from __future__ import annotations

from alembic import context

from hereish.gateway.ledger.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite cannot alter tables in place; later migrations copy them.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
