"""A run and a text for it, as `xt.attention` and `xt.generate` take them."""

from collections.abc import Sequence
from pathlib import Path

from extrapolate.errors import UserError
from extrapolate.interop.foreign import ForeignRun
from extrapolate.model.language_model import LanguageModel
from extrapolate.runs.run import Run
from extrapolate.specs.arguments import WHOLE, path, several


def opened(run: str | Path | Run | ForeignRun) -> Run | ForeignRun:
    """The run, or the one in a folder. Raises UserError if there is none."""
    return run if isinstance(run, Run | ForeignRun) else Run.open(path("run", run))


def ids_of(run: Run | ForeignRun, model: LanguageModel, parameter: str, text: str | Sequence[int]) -> list[int]:
    """The token ids of a text, or those that were given. Raises UserError if there are none, or unknown ones."""
    if isinstance(text, str):
        tokenizer = run.tokenizer
        tokenizer.no_truncation()  # a file of transformers may say how long its texts were
        try:
            ids = list(tokenizer.encode(text).ids)
        except TypeError:
            raise UserError(f"`{parameter}` has half a character, a lone surrogate, which is no text") from None
    else:
        given = text.tolist() if hasattr(text, "tolist") else text  # a tensor or an array
        ids = [int(id_) for id_ in several(parameter, given, WHOLE)]
    if not ids:
        raise UserError(f"`{parameter}` has no tokens: give a text")
    for id_ in ids:
        if not 0 <= id_ < model.vocab_size:
            raise UserError(
                f"`{parameter}`: there is no token {id_}; the model has those from 0 to {model.vocab_size - 1}"
            )
    return ids
