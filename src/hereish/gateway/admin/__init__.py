"""Administration: users, destinations, maintenance."""
