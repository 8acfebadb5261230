"""What the files of an exported folder say of its tokens: as in the checkpoint that the run was made from, if any."""

from typing import Any

from extrapolate.data.special_tokens import GENERATION, IDS, OF_RUN, TOKENIZER_CONFIG, TOKENS_MAP, kept_in
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.run import Run

# What would add tokens to texts, or run code that the run does not have.
_NOT_KEPT = {"auto_map", "add_bos_token", "add_eos_token"}


def token_records(run: Run, length: int, use_cache: bool) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The token ids for config.json, and the other JSON files by name.

    length: the longest text that the model is meant for. An imported run's files are those of its checkpoint. A run
    that was trained here, from a checkpoint's weights too, ends its texts with the token that ended its documents, and
    begins them with none.
    """
    tokenizer, special, trained = run.tokenizer, run.special_tokens, isinstance(run.config, TrainedConfig)
    generation, config, names = (kept_in(run.path, name) for name in (GENERATION, TOKENIZER_CONFIG, TOKENS_MAP))
    said = {} if trained else kept_in(run.path, OF_RUN)
    first = next(iter(special.eos), None)
    ends = list(special.eos) if len(special.eos) > 1 else first
    usual = {"bos_token_id": special.bos, "eos_token_id": ends, "pad_token_id": first if trained else None}
    ids = {name: said.get(name, usual[name]) for name in IDS}
    if trained or not generation:
        generation = {**generation, **ids, "use_cache": use_cache}
    elif not use_cache:
        generation["use_cache"] = False
    if trained or not config:
        own = {"bos_token": special.bos, "eos_token": first, "pad_token": said.get("pad_token_id", first)}
        tokens = {name: tokenizer.id_to_token(token) for name, token in own.items() if token is not None}
        names = {**names, **tokens}
        config = {
            "model_max_length": length,
            "padding_side": "right",
            "model_input_names": ["input_ids", "attention_mask"],  # versions before 5 add token_type_ids
            "clean_up_tokenization_spaces": False,
            **{name: value for name, value in config.items() if name not in _NOT_KEPT},
            **tokens,
            "tokenizer_class": "PreTrainedTokenizerFast",
        }
    elif config.pop("auto_map", None) is not None:
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    return ids, {GENERATION: generation, TOKENIZER_CONFIG: config, **({TOKENS_MAP: names} if names else {})}
