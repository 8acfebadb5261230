"""The peak of memory, since it was last forgotten."""

import mmap
import sys

import pytest

from extrapolate.machine.memory import forget_peak, peak_mib

SIZE = 100 * 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_peak_is_of_the_work_since_it_was_forgotten() -> None:
    forget_peak("cpu")
    before = peak_mib("cpu")
    with mmap.mmap(-1, SIZE) as held:  # given back at once, whatever the allocator keeps
        held.write(b"x" * SIZE)
        with_it = peak_mib("cpu")
    assert before is not None
    assert with_it is not None
    assert with_it > before + 90
    assert peak_mib("cpu") >= with_it - 1
    forget_peak("cpu")
    assert peak_mib("cpu") < with_it - 50
