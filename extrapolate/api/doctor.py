"""xt.doctor"""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from extrapolate.machine.examination import examine


def doctor(folder: str | Path = ".") -> pd.DataFrame:
    """Examines this machine in about ten seconds: what it has, what is slow about it, and what to do.

    Returns a row per part: `part`; `status`, which is `ok`, `slow`, `low` or `missing`; `value` and its `unit`, if it
    is a number; `found`, a text; and `advice`, if there is something to do. The parts are torch; the cores, and the
    share of their time that this process gets; threads; memory; the disk of `folder` (default: the current one); the
    GPU; whether torch.compile works; and each extra.

    Raises OSError if the folder does not exist.
    """
    return pd.DataFrame([asdict(one) for one in examine(Path(folder))])
