"""The version of this package, which is recorded in every result."""

__version__ = "0.1.0"
