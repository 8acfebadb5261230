"""How fast training is here, beside a peer and the floor: every number of one table from one run.

Each variant runs in a process of its own, so that its peak memory is its own too. Variants that are compared take
turns, step by step: what slows the machine for a while slows all of them. One step is a forward pass, a backward pass,
gradient clipping and AdamW, on one micro-batch of random tokens.
"""

import contextlib
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extrapolate.benchmark import busy, process
from extrapolate.encodings.plan import PLAIN
from extrapolate.errors import UserError
from extrapolate.machine.allocator import keep_freed_memory
from extrapolate.machine.cpu_time import CpuTime
from extrapolate.model.config import ModelConfig
from extrapolate.model.decoder import Model
from extrapolate.runs import config as configs
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.presets import preset as preset_sections
from extrapolate.runs.resolve import micro_batch_tokens
from extrapolate.training.optimizer import optimizer_of

Who = Literal["extrapolate", "transformers", "floor"]
WARM_UP_STEPS = 2  # the first of them compiles
LEAST_ROUNDS = 3
MOST_TAKEN = 0.05  # the share of a measurement's time that other programs may take


@dataclass(frozen=True)
class Variant:
    """What is measured: `floor` is the bare matrix products of a step, forward and backward, and nothing else."""

    who: Who
    precision: str
    compiled: bool = False
    dropout: bool = False


@dataclass(frozen=True)
class Speed:
    """A variant's steps, in the order of the rounds, seconds; its tokens a step, peak memory in MiB, and the share of
    its time that other programs took (None where the system does not tell). `busy_seconds` are of steps beside busy
    programs, which nothing else here counts."""

    seconds: list[float]
    tokens: int
    peak_mib: float
    taken: float | None
    busy_seconds: list[float] = field(default_factory=list)

    @property
    def tokens_per_s(self) -> float:
        """Of the median step."""
        return self.tokens / statistics.median(self.seconds)

    @property
    def busy_tokens_per_s(self) -> float | None:
        """Of the median step beside busy programs; None where there was none."""
        return self.tokens / statistics.median(self.busy_seconds) if self.busy_seconds else None

    def times_as_fast_as(self, other: "Speed") -> float | None:
        """The median over the rounds in which both took a step; None where other programs took too much of the time."""
        if any((speed.taken or 0.0) > MOST_TAKEN for speed in (self, other)):
            return None
        return statistics.median(theirs / own for own, theirs in zip(self.seconds, other.seconds, strict=True))


def groups(config: TrainedConfig, peer: bool, compiled: bool) -> list[list[Variant]]:
    """What is compared with each other: this model and the peer in one mode, beside the floor of its precision.

    A preset with dropout is measured with it and without, the peer too.
    """
    whose: list[Who] = ["extrapolate", "transformers"] if peer else ["extrapolate"]
    return [
        [*(Variant(who, precision, mode, dropout) for who in whose), Variant("floor", precision)]
        for precision in ("fp32", "bf16")
        for mode in ([False, True] if compiled else [False])
        for dropout in ([False, True] if config.model.dropout else [False])
    ]


def bench_config(preset: str, seq_len: int | None, encoding: str = "rope") -> TrainedConfig:
    """A preset as a run by AdamW would have it, on a CPU; training length 64 where the preset has none."""
    sections = preset_sections(preset)
    training = {"seq_len": 64, **sections["training"]} | ({"seq_len": seq_len} if seq_len else {})
    training["optimizer"] = "adamw"  # as that of a peer
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


def measure(config: TrainedConfig, group: list[Variant], seconds: float, beside: int = 0) -> dict[Variant, Speed]:
    """Measures the variants of a group for about so many seconds each, in turns.

    Then they are measured as long again beside so many programs that compute all the time.
    """
    with contextlib.ExitStack() as stack:
        workers = {variant: stack.enter_context(process.kept()) for variant in group}
        for begun in [worker.submit(_prepare, config, variant) for variant, worker in workers.items()]:
            begun.result()
        quiet = _rounds(workers, seconds)
        costs = {variant: worker.submit(_cost, variant).result() for variant, worker in workers.items()}
        with busy.programs(beside):
            loud = _rounds(workers, seconds) if beside else {}
    tokens = config.training.micro_batch_size * config.training.seq_len
    return {
        variant: Speed(quiet[variant], tokens, *costs[variant], busy_seconds=loud.get(variant, [])) for variant in group
    }


def _rounds(workers: dict[Variant, ProcessPoolExecutor], seconds: float) -> dict[Variant, list[float]]:
    """The seconds of each variant's steps."""
    rounds: list[list[float]] = []
    began = time.perf_counter()
    while len(rounds) < LEAST_ROUNDS or time.perf_counter() - began < seconds * len(workers):
        rounds.append([worker.submit(_timed_step, variant).result() for variant, worker in workers.items()])
    return {variant: [times[place] for times in rounds] for place, variant in enumerate(workers)}


@dataclass
class _Prepared:
    """What a worker's process keeps between steps: the step, and what others took from it so far."""

    step: Callable[[], None]
    load: CpuTime | None = field(default_factory=lambda: CpuTime(0.0, 0.0, 0.0))


_prepared: dict[Variant, _Prepared] = {}


def _prepare(config: TrainedConfig, variant: Variant) -> None:
    keep_freed_memory()
    torch.manual_seed(0)
    if not variant.dropout:
        config = config.model_copy(update={"model": config.model.model_copy(update={"dropout": 0.0})})
    make = {"extrapolate": _our_step, "transformers": _peer_step, "floor": _floor_step}[variant.who]
    step = make(config, variant)
    for _ in range(WARM_UP_STEPS):
        step()
    _prepared[variant] = _Prepared(step)


def _timed_step(variant: Variant) -> float:
    prepared = _prepared[variant]
    before, start = CpuTime.now(), time.perf_counter()
    prepared.step()
    seconds, after = time.perf_counter() - start, CpuTime.now()
    if before is None or after is None or prepared.load is None:
        prepared.load = None
    else:
        prepared.load += after - before
    return seconds


def _cost(variant: Variant) -> tuple[float, float | None]:
    """The worker's peak memory, MiB, and the share of its time that others took."""
    load = _prepared[variant].load
    return process.peak_memory_mib(), None if load is None else load.taken


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
    if variant.dropout:
        _drop(model, config.model.dropout)

    def loss(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return F.cross_entropy(model(input_ids=tokens_BT).logits.flatten(0, 1).float(), targets_BT.flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=config.training.lr, fused=True)
    compiled = torch.compile(loss) if variant.compiled else loss
    return _step(model, optimizer, compiled, _random_tokens(config), variant.precision)


def transformers_llama(sizes: ModelConfig, max_length: int) -> nn.Module:
    """`transformers`' Llama of the same sizes. Raises UserError if the package is missing."""
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


def _drop(model: nn.Module, probability: float) -> None:
    """Gives transformers' Llama the dropout that this model has: it has none on what enters the residual stream."""

    def dropped(module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return F.dropout(output[0], probability), *output[1:]
        return F.dropout(output, probability)

    for name, module in model.named_modules():
        if name.endswith(("embed_tokens", "self_attn", "mlp")):
            module.register_forward_hook(dropped)


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
