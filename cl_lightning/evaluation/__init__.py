"""What test data are for."""
