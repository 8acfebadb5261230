"""Whether a model can be evaluated on the text of a token store."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from extrapolate.data.store import HELDOUT, Split, Store
from extrapolate.errors import UserError
from extrapolate.evaluation.any_run import AnyRun, Subject
from extrapolate.evaluation.protocols.base import lengths_of, parse_protocol
from extrapolate.evaluation.rows import BLOCK_FACTOR
from extrapolate.evaluation.settings import TextSettings
from extrapolate.runs.config import TrainedConfig
from extrapolate.statistics.intervals import FEWEST
from extrapolate.statistics.reach import too_short


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


def few_documents(settings: TextSettings, split: Split, seq_len: int) -> list[str]:
    """Says what gives no interval: the text at some lengths or, if it is long enough, the limits of protocols."""
    lengths, stretch = lengths_of(settings.factors, seq_len), BLOCK_FACTOR * seq_len
    if (short := too_short(split.lengths, lengths, stretch)) is not None:
        return [f"{split.name}: {short}"]
    found = []
    for text in settings.protocols:
        groups = settings.layout(text, split, seq_len).rows[lengths[-1]]
        places = [np.stack([group.document_W, np.maximum(group.start_W, 0) // stretch]) for group in groups]
        clusters = len(np.unique(np.concatenate(places, axis=1), axis=1).T)
        protocol = parse_protocol(text)
        if clusters < FEWEST and (piece := settings.pieces(seq_len).get(protocol.name)):
            enough = settings.most_targets() | {protocol.name: FEWEST * piece[1]}
            found.append(
                f"{text}: the limit of {settings.limit_of(protocol):,} targets gives {clusters} clusters, each with a "
                f"{piece[0]} or more; fewer than {FEWEST} give no interval: give `max_targets={enough}`"
            )
    return found


def beginning_token(run: Subject, store: Store) -> int:
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
