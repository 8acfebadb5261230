"""The peak of memory, since it was last forgotten."""

import sys

import numpy as np
import pytest

from extrapolate.evaluation.memory import forget_peak, peak_mib


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_peak_is_of_the_work_since_it_was_forgotten() -> None:
    forget_peak("cpu")
    before = peak_mib("cpu")
    held = np.ones(100 * 2**17)  # 100 MiB
    with_it = peak_mib("cpu")
    del held
    assert before is not None
    assert with_it is not None
    assert before + 80 < with_it < before + 140
    assert peak_mib("cpu") >= with_it - 1
    forget_peak("cpu")
    assert peak_mib("cpu") < with_it - 50
