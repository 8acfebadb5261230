"""xt.export"""

from pathlib import Path

from extrapolate.interop.export import Exported, write
from extrapolate.runs.run import Run
from extrapolate.runs.trust import decided
from extrapolate.specs import arguments


@decided
def export(run: str | Path | Run, out: str | Path, *, trust_code: bool = False) -> Exported:
    """Writes a trained run as a folder that `transformers` loads, with its tokenizer and a model card.

    If a class of `transformers` computes the same as the run, the folder names it. Otherwise the folder contains the
    code of the model and is loaded with `trust_remote_code=True`, or without it after `import
    extrapolate.transformers`. docs/export.md says which runs need it. Logits are equal to 1e-5 in float32.

    run: a run or its folder. out: a new folder. trust_code: allow Python files that came with the run to run, even if
    you have not run them before; see docs/trust.md. Exporting does not need `transformers`.

    Raises UserError if the run is unfinished or damaged, or `out` already exists.
    """
    opened = run if isinstance(run, Run) else Run.open(arguments.path("run", run))
    return write(opened, arguments.path("out", out))
