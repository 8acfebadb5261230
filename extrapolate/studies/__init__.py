"""Studies: a grid of runs as the unit of work."""
