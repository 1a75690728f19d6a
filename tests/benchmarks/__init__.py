"""Speed, as ratios against the bare PyTorch loops in ``bare.py``: ``python -m tests.benchmarks``."""
