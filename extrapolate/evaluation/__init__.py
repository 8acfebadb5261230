"""Which tokens are scored with which context, and what they cost."""
