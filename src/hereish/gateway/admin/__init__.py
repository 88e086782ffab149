"""What an operator does: users, destinations, maintenance."""
