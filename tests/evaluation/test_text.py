"""What is said of text, or of limits, that give no interval."""

from types import SimpleNamespace

import numpy as np
import pytest

from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.text import few_documents


@pytest.mark.parametrize(
    ("documents", "settings", "words"),
    [
        (np.full(8, 20_000), {}, ["test: at 8,192 tokens 8 documents are long enough; fewer than 10 give no interval"]),
        (
            np.full(40, 20_000),
            {},
            [
                "windows: the limit of 131,072 targets gives 8 clusters, each with a span of 16384 tokens or more; "
                "fewer than 10 give no interval: give `max_targets={'windows': 163840}`",
                "fixed-target: the limit of 8,192 targets gives 2 clusters, each with a block of 4096 targets or more; "
                "fewer than 10 give no interval: give `max_targets={'fixed-target': 40960}`",
            ],
        ),
        (np.full(40, 20_000), {"max_targets": {"windows": 163_840, "fixed-target": 40_960}}, []),
        (np.full(40, 20_000), {"factors": (0.125, 0.25), "protocols": ("windows",)}, []),
    ],
)
def test_a_long_model_is_told_what_gives_no_interval(documents, settings, words) -> None:
    split = SimpleNamespace(lengths=documents, name="test")
    found = few_documents(EvaluationSettings(**{"factors": (1, 2)} | settings), split, 8192)
    assert len(found) == len(words)
    assert all(line.startswith(said) for line, said in zip(found, words, strict=True))
