"""Whether a model can be evaluated on the text of a token store."""

import json
from typing import Any

from tokenizers import Tokenizer

from extrapolate.data.store import HELDOUT, Split, Store
from extrapolate.errors import UserError
from extrapolate.evaluation.subject import Subject
from extrapolate.runs.config import TrainedConfig


def check_text(run: Subject, store: Store) -> None:
    """Raises UserError unless a store holds the corpus that a run was trained on; or, where it was trained elsewhere,
    unless the text that the store holds out is in the run's own tokens.
    """
    config = run.config
    if isinstance(config, TrainedConfig):
        if store.corpus_hash != config.data.corpus_hash:
            raise UserError(
                f"{run.path} was trained on corpus {config.data.corpus_hash}, and {store.path} is {store.corpus_hash}; "
                "name the run's own token store with `data`"
            )
        return
    if _splitting(run.tokenizer) != _splitting(store.tokenizer()):
        raise UserError(
            f"{store.path} was made with another tokenizer than that of {run.path}; tokenise the text with its own: "
            f"extrapolate tokenize SOURCE --tokenizer {run.path}/tokenizer.json --out {store.path}-{run.name}"
        )
    largest = max(_largest_token(store.split(name)) for name in HELDOUT)
    if largest >= config.vocab_size:
        raise UserError(
            f"{store.path} holds the token {largest}, and {run.path} has embeddings for {config.vocab_size}: "
            "its tokenizer.json is not the one that it was trained with"
        )


def _largest_token(split: Split) -> int:
    """End-of-text tokens, which no evaluation reads, are left out: the store may have added theirs."""
    documents = zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True)
    return max((int(split.slice(start, end - 1).max(initial=0)) for start, end in documents), default=0)


def _splitting(tokenizer: Tokenizer) -> dict[str, Any]:
    """All of a tokenizer that decides which tokens a text becomes: not its special tokens, nor how it decodes."""
    settings = json.loads(tokenizer.to_str())
    return {name: settings.get(name) for name in ("normalizer", "pre_tokenizer", "model")} | {
        "added_tokens": [token for token in settings.get("added_tokens") or [] if not token["special"]]
    }
