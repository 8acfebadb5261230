"""extrapolate: train short, test long, compare positional encodings fairly."""

__version__ = "0.1.0"
