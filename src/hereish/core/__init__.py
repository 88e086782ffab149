"""The mechanism of the paper: spaces, noise, decisions, predictions, budgets, and the step."""
