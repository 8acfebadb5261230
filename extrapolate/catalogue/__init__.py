"""The contents of `extrapolate encodings`, `extensions` and `columns`, read from the code."""
