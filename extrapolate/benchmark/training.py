"""How fast training is here, beside a peer and the floor: every number of one table from one run.

Each variant runs in a process of its own, so that its peak memory is its own too. One step is a forward pass, a
backward pass, gradient clipping and AdamW, on one micro-batch of random tokens.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extrapolate.benchmark import process
from extrapolate.errors import UserError
from extrapolate.machine.allocator import keep_freed_memory
from extrapolate.model.config import ModelConfig
from extrapolate.model.decoder import Model
from extrapolate.model.plan import PLAIN
from extrapolate.runs import config as configs
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.presets import preset as preset_sections
from extrapolate.runs.resolve import micro_batch_tokens
from extrapolate.training.optimizer import optimizer_of

Who = Literal["extrapolate", "transformers", "floor"]
WARM_UP_STEPS = 3  # the first of them compiles


@dataclass(frozen=True)
class Variant:
    """What is measured: `floor` is the bare matrix products of a step, forward and backward, and nothing else."""

    who: Who
    precision: str
    compiled: bool = False


@dataclass(frozen=True)
class Speed:
    """The median step's tokens per second, and the process's peak memory in MiB."""

    tokens_per_s: float
    peak_mib: float


VARIANTS = [
    Variant(who, precision, compiled)
    for precision in ("fp32", "bf16")
    for compiled in (False, True)
    for who in ("extrapolate", "transformers")
] + [Variant("floor", precision) for precision in ("fp32", "bf16")]


def bench_config(preset: str, seq_len: int | None, encoding: str = "rope") -> TrainedConfig:
    """A preset as a run would have it, on a CPU; training length 64 where the preset has none."""
    sections = preset_sections(preset)
    training = {"seq_len": 64, **sections["training"]} | ({"seq_len": seq_len} if seq_len else {})
    training["micro_batch_tokens"] = micro_batch_tokens(sections["model"]["vocab_size"], "cpu")
    sections["model"].setdefault("kv_heads", sections["model"].get("heads", 4))
    return configs.validate(
        {
            "preset": preset,
            "encoding": {"name": encoding},
            "model": sections["model"],
            "training": training,
            "data": {"path": "", "source": "random tokens", "corpus_hash": ""},
        },
        preset,
    )


def measure(config: TrainedConfig, variants: list[Variant], seconds: float) -> Iterator[tuple[Variant, Speed]]:
    """Measures each variant for about so many seconds, one after the other."""
    for variant in variants:
        yield variant, process.alone(_measure, config, variant, seconds)


def _measure(config: TrainedConfig, variant: Variant, seconds: float) -> Speed:
    keep_freed_memory()
    torch.manual_seed(0)
    windows = config.training.micro_batch_size
    step = {"extrapolate": _our_step, "transformers": _peer_step, "floor": _floor_step}[variant.who](config, variant)
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < WARM_UP_STEPS + 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
        if len(times) == WARM_UP_STEPS:
            began = time.perf_counter()
    median = statistics.median(times[WARM_UP_STEPS:])
    return Speed(windows * config.training.seq_len / median, process.peak_memory_mib())


def _random_tokens(config: TrainedConfig) -> Tensor:
    shape = (config.training.micro_batch_size, config.training.seq_len + 1)
    return torch.randint(0, config.model.vocab_size, shape)


def _our_step(config: TrainedConfig, variant: Variant) -> Callable[[], None]:
    model = Model(config.model, config.encoding.name, config.encoding.arguments, config.training.seq_len)
    optimizer = optimizer_of(model, config.training)
    model.train()
    setting = model.setting(PLAIN)  # made once, as a training does

    def loss(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return model.loss(tokens_BT, targets_BT, setting)

    compiled = torch.compile(loss) if variant.compiled else loss
    return _step(model, optimizer, compiled, _random_tokens(config), variant.precision)


def _peer_step(config: TrainedConfig, variant: Variant) -> Callable[[], None]:
    model = transformers_llama(config.model, config.training.seq_len)

    def loss(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return F.cross_entropy(model(input_ids=tokens_BT).logits.flatten(0, 1).float(), targets_BT.flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=config.training.lr, fused=True)
    compiled = torch.compile(loss) if variant.compiled else loss
    return _step(model, optimizer, compiled, _random_tokens(config), variant.precision)


def transformers_llama(sizes: ModelConfig, max_length: int) -> nn.Module:
    """`transformers`' Llama of the same sizes. Raises UserError where the package is missing."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        raise UserError("the peer needs the transformers package: pip install 'extrapolate[peers]'") from None
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


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, Tensor], Tensor],
    tokens: Tensor,
    precision: str,
) -> Callable[[], None]:
    model.train()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            value = loss(tokens[:, :-1], tokens[:, 1:])
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _floor_step(config: TrainedConfig, variant: Variant) -> Callable[[], None]:
    """Every matrix product of a step: for Y = X W also X^T dY and dY W^T, and the same for attention's two."""
    sizes, windows, length = config.model, config.training.micro_batch_size, config.training.seq_len
    dtype = torch.bfloat16 if variant.precision == "bf16" else torch.float32
    attention = sizes.heads * sizes.head_dim
    qkv = attention + 2 * sizes.kv_heads * sizes.head_dim
    rows = windows * length
    linears = [
        (sizes.width, qkv),
        (attention, sizes.width),
        (sizes.width, 2 * sizes.ff_width),
        (sizes.ff_width, sizes.width),
    ]
    shapes = [(1, rows, inner, outer) for inner, outer in linears] * sizes.layers
    shapes += [(1, rows, sizes.width, sizes.vocab_size)]
    shapes += [(windows * sizes.heads, length, sizes.head_dim, length)] * (2 * sizes.layers)
    operands = {
        shape: (
            torch.randn(shape[0], shape[1], shape[2], dtype=dtype),
            torch.randn(shape[0], shape[2], shape[3], dtype=dtype),
            torch.randn(shape[0], shape[1], shape[3], dtype=dtype),
        )
        for shape in set(shapes)
    }

    def step() -> None:
        for shape in shapes:
            x, w, y = operands[shape]
            torch.matmul(x, w)
            torch.matmul(x.transpose(-1, -2), y)
            torch.matmul(y, w.transpose(-1, -2))

    return step
