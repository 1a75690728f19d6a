"""Sources, streams, tasks: what is learned from. Nothing here knows of learners."""
