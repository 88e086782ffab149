"""What each client sends, and what it expects to hear: one module a client."""
