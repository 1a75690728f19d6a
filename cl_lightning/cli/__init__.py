"""The command line: what is typed, what is said."""
