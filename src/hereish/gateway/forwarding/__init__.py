"""Forwarding: releases are delivered to the users' destinations."""
