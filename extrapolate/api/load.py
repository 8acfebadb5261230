"""xt.load"""

from pathlib import Path

from extrapolate.runs.run import Run
from extrapolate.specs import arguments


def load(path: str | Path, *, trust_code: bool = False) -> Run:
    """Opens a run, with its `model` (the final weights), `config` and `tokenizer`.

    trust_code: allow Python files that came with the run to run, even if you have not run them before; see
    docs/trust.md. Raises UserError if there is no run, or it is damaged.
    """
    run = Run.open(arguments.path("path", path))
    if trust_code:
        run.trust_code()
    return run
