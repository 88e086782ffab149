"""Logs, metrics and usage. Nothing here holds a place."""
