"""xt.status"""

from dataclasses import asdict
from pathlib import Path

import pandas as pd

from extrapolate.api import arguments
from extrapolate.studies.status import status_of


def status(folder: str | Path) -> pd.DataFrame:
    """Returns how far each cell of a study is, even while another process works on it.

    folder: the study's, as `sweep` makes it. The rows have the cell, its status, the tokens that it was trained on and
    of how many, its last losses in nats, and why it failed. A status is `done`; `running`; `failed`; `diverged`, for
    the loss became infinite, and would again; `passed over`, for another learning rate was better; `trained`, and not
    evaluated yet; `begun`, and stopped; or `left`.

    Raises UserError if the folder holds no study.
    """
    return pd.DataFrame([asdict(one) for one in status_of(arguments.path("folder", folder))])
