"""xt.load"""

from pathlib import Path

from extrapolate.runs.run import Run


def load(path: str | Path) -> Run:
    """Opens a run. Its `model` has the final weights, its `config` the settings, its `tokenizer` the tokens.

    Raises UserError where there is no run, or it is damaged.
    """
    return Run.open(Path(path))
