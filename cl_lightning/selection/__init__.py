"""How hyper-parameters are chosen."""
