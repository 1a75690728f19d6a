"""What Hydra wants to find in a package of this name: the classes are thin, the work is in
``cl_lightning``."""
