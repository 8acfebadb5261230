"""How the threads of a matrix product wait for one another."""

import os
import sys
from collections.abc import MutableMapping

# Rounds of a loop, of 20 to 70 ns each. Beside one and two other busy processes on 2 cores, training is 1.4 and 1.8
# times as fast as with the library's own 300,000; alone it is as fast. With 0 it is half as fast alone.
SPINS = "1000"
_OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def wait_briefly(environment: MutableMapping[str, str] = os.environ) -> None:
    """For the whole process, and those that it starts: a thread that waits soon lets others have its core.

    At the end of every product all threads wait for the last. They do so in a loop, which is fast as long as each has a
    core. On a busy machine the last one has none, and the others keep it from getting theirs.

    libgomp, which torch computes with on Linux, reads this as it is loaded: call it before torch is imported. It is a
    setting of the process, so the command line calls it and the library does not. A user's own setting stays.
    """
    if sys.platform == "linux" and not any(name in environment for name in _OWN):
        environment["GOMP_SPINCOUNT"] = SPINS
