"""The store: the folder of a run, whose files are each there whole or not at all."""
