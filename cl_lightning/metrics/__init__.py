"""Numbers computed from what happened: pure functions."""
