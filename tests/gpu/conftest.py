"""Where the tests for a GPU run.

EXTRAPOLATE_GPU=cpu runs them on a machine without one, to try the tests themselves.
"""

import os

import pytest
import torch

DEVICE = os.environ.get("EXTRAPOLATE_GPU", "cuda")


@pytest.fixture(scope="session")
def device() -> str:
    if DEVICE == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU: make gpu runs it")
    return DEVICE
