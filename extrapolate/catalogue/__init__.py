"""What `extrapolate encodings`, `extensions` and `columns` list, read from the code."""
