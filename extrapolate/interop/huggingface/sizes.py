"""The sizes of a checkpoint's model."""

from pydantic import ValidationError

from extrapolate.interop.huggingface.architectures import ACTIVATIONS, architecture_of
from extrapolate.interop.huggingface.source import Source
from extrapolate.model.config import ModelConfig


def sizes_of(source: Source) -> ModelConfig:
    """The model's sizes. Raises UserError if the configuration lacks one, or they do not fit."""
    config, architecture = source.config, architecture_of(source.config)
    heads = config.whole("num_attention_heads")
    width = config.whole("hidden_size")
    if config.values.get("head_dim") is None and width % heads:
        raise config.error(f"hidden_size {width} is not a multiple of {heads} heads")
    kv_heads = heads if config.values.get("num_key_value_heads") is None else config.whole("num_key_value_heads")
    if heads % kv_heads:
        raise config.error(f"num_key_value_heads is {kv_heads}, of {heads} heads")
    sizes = dict(
        vocab_size=config.whole("vocab_size"),
        width=width,
        layers=config.whole("num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width // heads if config.values.get("head_dim") is None else config.whole("head_dim"),
        dropout=0.0,
        ff_width=config.whole("intermediate_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        norm_eps=config.number("rms_norm_eps", 1e-6),
        qk_norm=architecture.qk_norm,
        qkv_bias=config.flag("attention_bias") if architecture.qkv_bias is None else architecture.qkv_bias,
        activation=ACTIVATIONS[config.values[architecture.activation]],
        post_norms=architecture.post_norms,
    )
    try:
        return ModelConfig.model_validate(sizes)
    except ValidationError as error:
        first = error.errors()[0]
        raise config.error(f"{first['loc'][0]} cannot be: {first['msg']}") from None
