"""Releases sent on to the users' destinations."""
