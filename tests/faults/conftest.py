"""How hard the tests of this folder look: EXTRAPOLATE_FAULTS is `short`, as in every run of the suite, or `long`."""

import os

from hypothesis import settings

EXAMPLES = {"short": 50, "long": 10_000}
settings.register_profile(
    "fuzzing", max_examples=EXAMPLES[os.environ.get("EXTRAPOLATE_FAULTS", "short")], deadline=None
)
