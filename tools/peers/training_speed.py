"""How fast training is beside transformers' Llama of the same sizes."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import busy
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from extrapolate.benchmark import STEPS, Step, Variant, bench_config, groups, measure_training, step_of
from extrapolate.model.config import ModelConfig
from extrapolate.runs.config import TrainedConfig


def rows(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """A row for each program in each mode; the floor has none, it is in the ratios.

    A preset with dropout is trained with it, as `train` does.
    """
    for preset in options.preset:
        config = bench_config(preset, options.seq_len)
        for ours, floor in groups(config, not options.no_compile):
            if ours.dropout != (config.model.dropout > 0):
                continue
            group = [ours, peer := replace(ours, who="transformers"), floor]
            quiet = measure_training(config, group, options.seconds, WITH_PEER)
            with busy.programs(options.busy):
                loud = measure_training(config, group, options.seconds, WITH_PEER) if options.busy else None
            mode = [ours.precision, "compiled" if ours.compiled else "eager", "dropout" if ours.dropout else ""]
            for variant in (ours, peer):
                yield {
                    "what": f"training {preset}, tokens/s", "who": variant.who, "mode": " ".join(filter(None, mode)),
                    "speed": quiet[variant].tokens_per_s,
                    "of floor": quiet[variant].times_as_fast_as(quiet[floor]),
                    "of the peer": quiet[variant].times_as_fast_as(quiet[peer]),
                    f"beside {options.busy} busy": loud and loud[variant].tokens_per_s,
                    "peak MiB": quiet[variant].peak_mib,
                }  # fmt: skip


def peer_step(config: TrainedConfig, variant: Variant) -> Step:
    """A training step of transformers' model."""
    model = transformers_llama(config.model, config.training.seq_len)
    if variant.dropout:
        drop(model, config.model.dropout)

    def loss(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return F.cross_entropy(model(input_ids=tokens_BT).logits.flatten(0, 1).float(), targets_BT.flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=config.training.lr, fused=True)
    return step_of(config, model, optimizer, torch.compile(loss) if variant.compiled else loss, variant.precision)


WITH_PEER = STEPS | {"transformers": peer_step}


def transformers_llama(sizes: ModelConfig, max_length: int) -> nn.Module:
    """transformers' Llama of the same sizes."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=sizes.vocab_size,
            hidden_size=sizes.width,
            intermediate_size=sizes.ff_width,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            num_key_value_heads=sizes.kv_heads,
            head_dim=sizes.head_dim,
            tie_word_embeddings=sizes.tied_embeddings,
            rms_norm_eps=sizes.norm_eps,
            max_position_embeddings=max_length,
            use_cache=False,
        )
    )


def drop(model: nn.Module, probability: float) -> None:
    """Gives transformers' Llama the dropout that this model has: it has none on what enters the residual stream."""

    def dropped(module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return F.dropout(output[0], probability), *output[1:]
        return F.dropout(output, probability)

    for name, module in model.named_modules():
        if name.endswith(("embed_tokens", "self_attn", "mlp")):
            module.register_forward_hook(dropped)
