"""Whether a model can be evaluated on the text of a token store."""

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer

from extrapolate.data.store import HELDOUT, Split, Store
from extrapolate.errors import UserError
from extrapolate.evaluation.any_run import AnyRun
from extrapolate.runs.config import TrainedConfig


def check_text(run: AnyRun, store: Store, splits: Iterable[str] = HELDOUT) -> None:
    """Raises UserError unless the text of a store's splits is in the run's own tokens, all with embeddings."""
    config = run.config
    if isinstance(config, TrainedConfig) and store.corpus_hash == config.data.corpus_hash:
        return
    if _splitting(run.tokenizer) != _splitting(store.tokenizer()):
        raise UserError(
            f"{store.path} was made with another tokenizer than that of {run.path}; tokenise the text with its own: "
            f"extrapolate tokenize SOURCE --tokenizer {run.path}/tokenizer.json --out {store.path}-{run.name}"
        )
    largest = max(_largest_token(store.split(name)) for name in splits)
    if largest >= config.vocab_size:
        raise UserError(
            f"{store.path} holds the token {largest}, and {run.path} has embeddings for {config.vocab_size}: "
            "its tokenizer.json is not the one that it was trained with"
        )


def beginning_token(run: AnyRun, store: Store) -> int:
    """The token that `bos` puts before every window.

    Runs that were trained here have seen the end-of-text token before every document; other models their
    beginning-of-text token or, failing that, their end-of-text token. Raises UserError if they have neither.
    """
    if isinstance(run.config, TrainedConfig):
        return int(store.manifest["eos_id"])
    special = run.special_tokens
    found = next(iter(special.eos), None) if special.bos is None else special.bos
    if found is None or found >= run.config.vocab_size:
        raise UserError(
            f"the checkpoint and tokenizer of {run.path} name no token that begins or ends a text, so none can stand "
            "before the windows: leave out `bos`"
        )
    return found


def _largest_token(split: Split) -> int:
    """Ignores end-of-text tokens: no evaluation reads them, and the store may have added its own."""
    documents = zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True)
    return max((int(split.slice(start, end - 1).max(initial=0)) for start, end in documents), default=0)


def _splitting(tokenizer: Tokenizer) -> dict[str, Any]:
    """The parts of a tokenizer that decide how text is split: not its special tokens, nor its decoder."""
    settings = json.loads(tokenizer.to_str())
    return {name: settings.get(name) for name in ("normalizer", "pre_tokenizer", "model")} | {
        "added_tokens": [token for token in settings.get("added_tokens") or [] if not token["special"]]
    }
