"""xt.plot_encodings"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from extrapolate import specs
from extrapolate.api.own_class import EncodingClass, ExtensionClass, spec_of, specs_of
from extrapolate.encodings.base import encodings
from extrapolate.errors import UserError
from extrapolate.evaluation.plans import AppliedExtensions
from extrapolate.extensions import stack as stacks
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.inspection.picture import Look, check_file, picture, save
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.reports.fonts import with_all_letters
from extrapolate.reports.plots import own_settings
from extrapolate.runs.run import Run
from extrapolate.runs.trust import decided
from extrapolate.specs.arguments import path, several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEQ_LEN = 128  # tokens: enough for a learned table to have all positions in a picture


@decided
@own_settings()
def plot_encodings(
    names: str | Path | Run | EncodingClass | Sequence[str | Path | Run | EncodingClass],
    out: str | Path | None = None,
    *,
    extend: str | ExtensionClass | None = None,
    trust_code: bool = False,
) -> "Figure":
    """Draws what encodings look like, side by side, and returns a matplotlib figure.

    names: encodings, such as `rope`, `rope:theta=500000`, `my_file.py:MyEncoding` or a class, which are drawn as
    initialised with seed 0 in a model of width 128 with 4 heads and L = 128 tokens; and runs or their folders, which
    are drawn as trained. out: a file to write, .png, .svg or .pdf. extend: an extension, such as `pi` or `yarn:factor=8
    + log-n`, before and after which scores are drawn. trust_code: allow Python files that came with the runs to run,
    even if you have not run them before; see docs/trust.md.

    Raises UserError if a name is unknown, the extension does not apply to one of them, or there are too many.
    """
    if out is not None:
        check_file(path("out", out))
    given = several("names", specs_of(names), ((str, Path, Run), "an encoding or a run"))
    if not given:
        raise UserError("name at least one encoding, or a run")
    stack = None if extend is None else stacks.parse(spec_of(extend))
    if stack is not None and (part := stack.to_fit) is not None:
        raise UserError(f"{extend} has a constant that is fitted to text: give it, such as {part.example}")
    looks = [_look(name, stack) for name in given]

    def drawn() -> "Figure":
        figure = picture(looks, "" if stack is None else stack.label())
        if out is not None:
            save(figure, Path(out))
        return figure

    return with_all_letters(drawn)


def _look(name: str | Path | Run, stack: ExtensionStack | None) -> Look:
    if isinstance(name, Run) or (str(name) not in encodings.names() and Path(name).is_dir()):
        return _of_run(name if isinstance(name, Run) else Run.open(Path(name)), stack)
    spec = specs.parse(str(name))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Model(ModelConfig.model_validate({"vocab_size": 1}), spec.name, spec.arguments, SEQ_LEN).eval()
    if stack is None:
        return Look(model, model.label(), SEQ_LEN)
    stacks.check_applies(stack, model)
    return Look(model, model.label(), SEQ_LEN, extended=partial(stack.plan, model.encoding, SEQ_LEN))


def _of_run(run: Run, stack: ExtensionStack | None) -> Look:
    model, own = run.model, AppliedExtensions(run.own_extension, None)
    title = f"{model.label()}, run {run.name}"
    trained = run.config.trained_length
    if stack is None:
        return Look(model, title, trained, partial(own.plan, run, model))
    both = AppliedExtensions(run.own_extension, stack)
    joined = both.joined()
    assert joined is not None
    stacks.check_applies(joined, model)
    return Look(model, title, trained, partial(own.plan, run, model), partial(both.plan, run, model))
