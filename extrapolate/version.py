"""This package's version, which every result carries."""

__version__ = "0.1.0"
