"""The ledger: what was released and what it cost, in SQLite or PostgreSQL."""
