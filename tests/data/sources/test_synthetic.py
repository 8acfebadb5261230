"""Synthetic text as a source."""

import pytest

from extrapolate.data.sources import open_source
from extrapolate.data.synthetic.base import processes


@pytest.mark.parametrize("spec", ["synthetic", "synthetic:", "synthetic: "])
def test_without_a_process_those_that_there_are_are_listed(spec: str) -> None:
    with pytest.raises(ValueError, match="names no process: expected one of ") as refused:
        open_source(spec)
    assert "synthetic:echo, synthetic:markov" in str(refused.value)
    assert all(f"synthetic:{name}" in str(refused.value) for name in processes.names())
