"""The version of this package, which every run records."""

VERSION = "0.1.0"
