"""What every learner promises, tested: ``python -m cl_lightning.contract learner=x``."""
