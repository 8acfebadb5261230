"""Words that evaluations and reports share, without torch."""

PLAIN_NAME = "none"  # the extension column of a row without one
