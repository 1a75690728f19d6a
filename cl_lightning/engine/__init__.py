"""Training: lock-step, phases, account."""
