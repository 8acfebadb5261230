"""xt.export"""

from pathlib import Path

from extrapolate.interop.export import Exported, write
from extrapolate.runs.run import Run
from extrapolate.runs.trust import decided
from extrapolate.specs import arguments


@decided
def export(run: str | Path | Run, out: str | Path, *, trust_code: bool = False) -> Exported:
    """Writes a trained run as a folder that `transformers` loads, with its tokenizer and a model card.

    The folder names a class of `transformers` where one computes the same as the run. Else it holds the code of the
    model, one file made from the source of this package, and is loaded with `trust_remote_code=True`, or after
    `import extrapolate.transformers` without. docs/export.md says which. Logits are equal to 1e-5 in float32.

    run: a run or its folder. out: a new folder. trust_code: Python files that came with the run may run, though you
    have not run them before: see docs/trust.md. `transformers` is not needed to export.

    Raises UserError if the run is not finished or damaged, or `out` is there already.
    """
    opened = run if isinstance(run, Run) else Run.open(arguments.path("run", run))
    return write(opened, arguments.path("out", out))
