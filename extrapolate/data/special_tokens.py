"""Which tokens begin and end a text: what a checkpoint's files say, then what its tokenizer does, then usual names."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from extrapolate import files
from extrapolate.errors import UserError

CONFIG, GENERATION, STORE = "config.json", "generation_config.json", "manifest.json"
TOKENIZER_CONFIG, TOKENS_MAP, TEMPLATE = "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
KEPT = (GENERATION, TOKENIZER_CONFIG, TOKENS_MAP, TEMPLATE)  # what a run keeps of a checkpoint, for its export
OF_RUN = "special_tokens.json"  # the token ids of a run, by their names in a checkpoint's config.json
IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
EOS = "<eos>"
# The last resort. Of those in a vocabulary, special ones come first: `<s>` may be an HTML tag.
USUAL = {
    "bos": ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<｜begin▁of▁sentence｜>", "[BOS]"),
    "eos": (EOS, "</s>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<｜end▁of▁sentence｜>", "[EOS]"),
}
_VERBS = {"bos": "begin", "eos": "end"}


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the tokens that begin and end texts.

    bos: None if there is none. eos: any of these ends a text that is generated; the first stands after each document.
    Empty if there is none. notes: what was chosen if the places that say so disagree.
    """

    bos: int | None = None
    eos: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def find(tokenizer: Tokenizer, folder: Path | None = None) -> SpecialTokens:
    """The special tokens of a tokenizer. folder: that of a checkpoint, run or store with further files, if any.

    special_tokens.json, which a run has, counts first, then config.json, generation_config.json, tokenizer_config.json,
    special_tokens_map.json, the tokens that the tokenizer itself puts around texts, and usual names. Raises UserError
    if a file is damaged.
    """
    found: dict[str, list[tuple[str, list[int]]]] = {"bos": [], "eos": []}
    notes = []
    for place, kind, given in _said(tokenizer, folder):
        checked = place in (CONFIG, GENERATION)
        usable = [one for one in given if (is_special if checked else exists)(tokenizer, one)]
        found[kind] += [(place, usable)] if usable else []
        for one in given if not usable else []:
            notes.append(f"{place} says that texts {_VERBS[kind]} with token {one}, which is no special token: ignored")
    chosen: dict[str, list[int]] = {}
    for kind, places in found.items():
        first, ids = places[0] if places else ("", [*_usual(tokenizer, kind)])
        both = kind == "eos" and first in (OF_RUN, CONFIG)  # a checkpoint's two lists of stop tokens count together
        more = [one for place, some in places if both and place == GENERATION for one in some]
        chosen[kind] = list(dict.fromkeys([*ids, *more]))
        for place, some in places[1:]:
            if not set(some) & set(ids):
                notes.append(
                    f"texts {_VERBS[kind]} with {_shown(tokenizer, ids[0])}, as {_name(first)} says; {place} says "
                    f"{_shown(tokenizer, some[0])}"
                )
    return SpecialTokens(next(iter(chosen["bos"]), None), tuple(chosen["eos"]), tuple(dict.fromkeys(notes)))


def exists(tokenizer: Tokenizer, token: Any) -> bool:
    """Whether a value is the id of a token."""
    return type(token) is int and 0 <= token < 2**32 and tokenizer.id_to_token(token) is not None


def is_special(tokenizer: Tokenizer, token: Any) -> bool:
    """Whether a value is the id of a token that is no text.

    The configurations of transformers say 1 and 2 by default, whatever these tokens are.
    """
    added, usual = tokenizer.get_added_tokens_decoder(), {name for names in USUAL.values() for name in names}
    return exists(tokenizer, token) and (token in added or tokenizer.id_to_token(token) in usual)


def ids_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """The token ids that a checkpoint's configuration gives; of text and pictures, those of the whole first."""
    text = config.get("text_config")
    both = {**(text if isinstance(text, dict) else {}), **{k: v for k, v in config.items() if v is not None}}
    return {name: both[name] for name in IDS if both.get(name) is not None}


def usable_ids(tokenizer: Tokenizer, config: Mapping[str, Any]) -> dict[str, Any]:
    """The same, without those that are tokens of text."""
    lists = {name: given if isinstance(given, list) else [given] for name, given in ids_in(config).items()}
    return {
        name: config_ids
        for name, config_ids in ids_in(config).items()
        if any(is_special(tokenizer, one) for one in lists[name])
    }


def kept_in(folder: Path | None, name: str) -> dict[str, Any]:
    """One of a checkpoint's files; empty if it is missing. Raises UserError if it is damaged."""
    if folder is None or not (folder / name).is_file():
        return {}
    record = files.read_json(folder / name)
    if not isinstance(record, dict):
        raise UserError(f"{folder / name} is damaged: it is not an object")
    return record


def files_of(ids: Mapping[str, Any], folder: Path | None = None) -> dict[str, bytes]:
    """What a run keeps on its tokens: their ids, and the further files of the checkpoint or run in `folder`."""
    kept = {} if folder is None else {name: folder / name for name in KEPT}
    copies = {name: path.read_bytes() for name, path in kept.items() if path.is_file()}
    return copies | {OF_RUN: (json.dumps(ids, indent=2) + "\n").encode()}


def _said(tokenizer: Tokenizer, folder: Path | None) -> Iterator[tuple[str, str, list[Any]]]:
    """The places that say which tokens are special, in order: each with `bos` or `eos`, and their ids."""
    for file in (OF_RUN, CONFIG, GENERATION):
        ids = ids_in(kept_in(folder, file))
        for kind in _VERBS:
            if (given := ids.get(f"{kind}_token_id")) is not None:
                yield file, kind, given if isinstance(given, list) else [given]
    for file in (TOKENIZER_CONFIG, TOKENS_MAP):
        record = kept_in(folder, file)
        for kind in _VERBS:
            named = record.get(f"{kind}_token")
            name = named.get("content") if isinstance(named, dict) else named
            if isinstance(name, str) and (token := tokenizer.token_to_id(name)) is not None:
                yield file, kind, [token]
    if type(end := kept_in(folder, STORE).get("eos_id")) is int:
        yield STORE, "eos", [end]
    for kind, added in zip(_VERBS, around(tokenizer), strict=True):
        if added:
            yield "tokenizer.json", kind, [added[0 if kind == "bos" else -1]]


def around(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special tokens that a tokenizer puts before and after each text."""
    if tokenizer.post_processor is None:
        return [], []
    for any_text in ("a", *sorted(tokenizer.get_vocab(with_added_tokens=False))[:1]):
        with contextlib.suppress(Exception):  # the library has no type of its own for a text without tokens
            encoding = tokenizer.encode(any_text)
            text = [at for at, special in enumerate(encoding.special_tokens_mask) if not special]
            return encoding.ids[: text[0]], encoding.ids[text[-1] + 1 :]
    return [], []


def _usual(tokenizer: Tokenizer, kind: str) -> Iterable[int]:
    """The token with a usual name, if there is one."""
    there = [token for name in USUAL[kind] if (token := tokenizer.token_to_id(name)) is not None]
    added = tokenizer.get_added_tokens_decoder()
    return sorted(there, key=lambda token: not (token in added and added[token].special))[:1]


def _shown(tokenizer: Tokenizer, token: int) -> str:
    return f"{tokenizer.id_to_token(token)} ({token})"


def _name(place: str) -> str:
    return CONFIG if place == OF_RUN else place
