"""Measures the speed of training and evaluation on this machine. All numbers of a table come from one run.

Each measurement runs in its own process, so that its peak memory is its own too. A step is a forward pass, a backward
pass, gradient clipping and AdamW, on one micro-batch of random tokens.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from extrapolate import specs
from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation.losses import BATCH_TOKENS
from extrapolate.machine import children
from extrapolate.machine.cpu_time import CpuTime
from extrapolate.machine.devices import precision_of
from extrapolate.machine.limits import stay_within_quota
from extrapolate.machine.memory import keep_freed_memory, lifetime_peak_mib
from extrapolate.model.model import Model
from extrapolate.runs import config as configs
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.presets import preset as preset_sections
from extrapolate.runs.resolve import micro_batch_tokens
from extrapolate.training.optimizer import optimizer_of

WARM_UP_STEPS = 2  # the first of them compiles
LEAST_ROUNDS = 3
SETTLED = 0.03  # seconds before a step, in which the threads of the one before stop to wait in a busy loop
MOST_TAKEN = 0.05  # the share of a measurement's time that other programs may take
FACTORS = (1, 16)  # evaluation lengths, in units of L
EVALUATED_TOKENS = 2048  # in a forward pass of `measure_token`, or one window
TRAINING = "eager"  # the mode in which encodings are trained


def evaluation(factor: int) -> str:
    """The name of the mode that evaluates at a factor."""
    return f"{factor}x fp32"


@dataclass(frozen=True)
class Variant:
    """One kind of step to measure; `who` is a key of STEPS."""

    who: str
    precision: str
    compiled: bool = False
    dropout: bool = False


@dataclass(frozen=True)
class Speed:
    """The time of each step, in seconds, by round; tokens per step; peak memory in MiB; and `taken`, the share of the
    time that other programs took (None if the system does not report it)."""

    seconds: list[float]
    tokens: int
    peak_mib: float
    taken: float | None

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second, from the median step time."""
        return self.tokens / statistics.median(self.seconds)

    def times_as_fast_as(self, other: "Speed") -> float | None:
        """The median over rounds of the ratio of step times; None if other programs took too much of the time."""
        if any((speed.taken or 0.0) > MOST_TAKEN for speed in (self, other)):
            return None
        return statistics.median(theirs / own for own, theirs in zip(self.seconds, other.seconds, strict=True))


@dataclass(frozen=True)
class BesideRoPE:
    """An encoding's speed in one mode, and RoPE's in the same rounds.

    Peak memory is in MiB above that of the bare model, and includes earlier modes; training comes last.
    """

    own: Speed
    rope: Speed

    @property
    def ratio(self) -> float | None:
        """The speed relative to RoPE's; None if other programs took too much of the time."""
        return self.own.times_as_fast_as(self.rope)


def bench_config(preset: str, seq_len: int | None, encoding: str = "rope") -> TrainedConfig:
    """The configuration of a preset, trained by AdamW on a CPU; the training length is 64 if the preset has none."""
    spec, sections = specs.parse(encoding), preset_sections(preset)
    model, training = sections["model"], sections["training"]
    raw = {
        "preset": preset,
        "encoding": {"name": spec.name, "arguments": dict(spec.arguments)},
        "model": {"kv_heads": model.get("heads", 4), **model},
        "training": {
            **training,
            "seq_len": seq_len or training.get("seq_len", 64),
            "optimizer": "adamw",
            "micro_batch_tokens": micro_batch_tokens(model["vocab_size"], "cpu"),
        },
        "data": {"path": "", "source": "random tokens", "corpus_hash": ""},
    }
    return configs.validate(raw, preset)


def groups(config: TrainedConfig, compiled: bool) -> list[list[Variant]]:
    """The groups to compare: the model in one mode, and the floor of the same precision.

    A preset with dropout is measured with and without it.
    """
    return [
        [Variant("extrapolate", precision, mode, dropout), Variant("floor", precision)]
        for precision in ("fp32", "bf16")
        for mode in ([False, True] if compiled else [False])
        for dropout in ([False, True] if config.model.dropout else [False])
    ]


Step = Callable[[], None]
StepMaker = Callable[[TrainedConfig, Variant], Step]


def model_step(config: TrainedConfig, variant: Variant) -> Step:
    """A training step of this package's model."""
    model = _model(config)
    setting = model.resolve(PLAIN)  # made once, as in training

    def loss(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return model.loss(tokens_BT, targets_BT, setting)

    compiled = torch.compile(loss) if variant.compiled else loss
    return step_of(config, model, optimizer_of(model, config.training), compiled, variant.precision)


def floor_step(config: TrainedConfig, variant: Variant) -> Step:
    """The bare matrix products of a step: for Y = X W also X^T dY and dY W^T, and the same for attention's two."""
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
        (batch, n, inner, outer): (
            torch.randn(batch, n, inner, dtype=dtype),
            torch.randn(batch, inner, outer, dtype=dtype),
            torch.randn(batch, n, outer, dtype=dtype),
        )
        for batch, n, inner, outer in set(shapes)
    }

    def step() -> None:
        for shape in shapes:
            x, w, y = operands[shape]
            torch.matmul(x, w)
            torch.matmul(x.transpose(-1, -2), y)
            torch.matmul(y, w.transpose(-1, -2))

    return step


STEPS: Mapping[str, StepMaker] = {"extrapolate": model_step, "floor": floor_step}


def step_of(
    config: TrainedConfig,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Tensor, Tensor], Tensor],
    precision: str,
) -> Step:
    """A training step of a model, always on the same random tokens."""
    tokens = _random_tokens(config, config.training.micro_batch_size, config.training.seq_len)
    model.train()

    def step() -> None:
        with torch.autocast(config.training.device, torch.bfloat16, enabled=precision == "bf16"):
            value = loss(tokens[:, :-1], tokens[:, 1:])
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure_training(
    config: TrainedConfig, group: list[Variant], seconds: float, steps: Mapping[str, StepMaker] = STEPS
) -> dict[Variant, Speed]:
    """Measures the variants of a group for about `seconds` each.

    They take turns, step by step, so that whatever slows the machine for a while slows all of them.
    """
    with contextlib.ExitStack() as stack:
        turns = [(stack.enter_context(children.worker()), variant) for variant in group]
        for prepared in [worker.submit(_prepare, config, variant, steps) for worker, variant in turns]:
            prepared.result()
        times = _in_turns(turns, seconds)
        costs = [worker.submit(_cost, variant).result() for worker, variant in turns]
    tokens = config.training.micro_batch_size * config.training.seq_len
    return {variant: Speed(times[at], tokens, *costs[at]) for at, variant in enumerate(group)}


def _in_turns(turns: Sequence[tuple[Executor, Hashable]], seconds: float) -> list[list[float]]:
    """Runs the step of each (worker, name) once a round, for about `seconds` each; returns each one's step times."""
    rounds: list[list[float]] = []
    began = time.perf_counter()
    while len(rounds) < LEAST_ROUNDS or time.perf_counter() - began < seconds * len(turns):
        rounds.append([worker.submit(_timed_step, name).result() for worker, name in turns])
    return [list(times) for times in zip(*rounds, strict=True)]


_NONE_YET = CpuTime(0.0, 0.0, 0.0)


@dataclass
class _Prepared:
    """A step in a worker's process, and its CPU time so far (None if the system does not report it)."""

    step: Step
    load: CpuTime | None = _NONE_YET


_prepared: dict[Hashable, _Prepared] = {}


def _warm_up(name: Hashable, step: Step) -> None:
    for _ in range(WARM_UP_STEPS):
        step()
    _prepared[name] = _Prepared(step)


def _prepare(config: TrainedConfig, variant: Variant, steps: Mapping[str, StepMaker]) -> None:
    keep_freed_memory()
    stay_within_quota()
    torch.manual_seed(0)
    if not variant.dropout:
        config = config.model_copy(update={"model": config.model.model_copy(update={"dropout": 0.0})})
    _warm_up(variant, steps[variant.who](config, variant))


def _timed_step(name: Hashable) -> float:
    prepared = _prepared[name]
    time.sleep(SETTLED)
    before, start = CpuTime.now(), time.perf_counter()
    prepared.step()
    seconds, after = time.perf_counter() - start, CpuTime.now()
    if before is None or after is None or prepared.load is None:
        prepared.load = None
    else:
        prepared.load += after - before
    return seconds


def _cost(name: Hashable) -> tuple[float, float | None]:
    """The worker's peak memory in MiB, and the share of the step's time that other programs took."""
    load, _prepared[name].load = _prepared[name].load, _NONE_YET
    return lifetime_peak_mib(), None if load is None else load.taken


def measure_encodings(
    names: list[str], preset: str, seq_len: int | None, seconds: float
) -> Iterator[tuple[str, dict[str, BesideRoPE]]]:
    """Measures each encoding, a spec, in its own process beside RoPE in another, each mode for about `seconds`.

    The two take turns, step by step. Modes are TRAINING, eager and in the precision that `train` would choose, and
    evaluation in fp32 at each of FACTORS that the encoding reaches. Raises UserError on an unknown spec.
    """
    made = [(name, bench_config(preset, seq_len, name)) for name in names]
    for _, config in made:
        _model(config)
    with children.worker() as rope:
        modes_of_rope = rope.submit(_prepare_modes, bench_config(preset, seq_len)).result()
        for name, config in made:
            with children.worker() as own:
                modes = own.submit(_prepare_modes, config).result()
                yield (
                    name,
                    {mode: _beside([(own, modes[mode]), (rope, modes_of_rope[mode])], mode, seconds) for mode in modes},
                )


def _beside(sides: Sequence[tuple[Executor, tuple[int, float]]], mode: str, seconds: float) -> BesideRoPE:
    """sides: the worker of the encoding and that of RoPE, each with what `_prepare_modes` found for the mode."""
    times = _in_turns([(worker, mode) for worker, _ in sides], seconds)
    own, rope = (
        Speed(each, *found, worker.submit(_cost, mode).result()[1])
        for (worker, found), each in zip(sides, times, strict=True)
    )
    return BesideRoPE(own, rope)


def _prepare_modes(config: TrainedConfig) -> dict[str, tuple[int, float]]:
    """The tokens of a step in each mode, and the peak memory above that of the bare model, in MiB."""
    keep_freed_memory()
    stay_within_quota()
    model = _model(config)
    before, found = lifetime_peak_mib(), {}

    def prepare(mode: str, step: Step, tokens: int) -> None:
        _warm_up(mode, step)
        found[mode] = tokens, lifetime_peak_mib() - before

    for factor in FACTORS:
        length = factor * config.training.seq_len
        if model.encoding.max_length is None or length <= model.encoding.max_length:
            windows = max(1, BATCH_TOKENS // length)
            forward = partial(_forward, model, _random_tokens(config, windows, length))
            prepare(evaluation(factor), forward, windows * length)
    step = step_of(config, model, optimizer_of(model, config.training), model.loss, precision_of("cpu"))

    def train() -> None:
        model.train()
        step()

    prepare(TRAINING, train, config.training.micro_batch_size * config.training.seq_len)
    return found


@torch.inference_mode()
def _forward(model: Model, tokens: Tensor) -> None:
    model.eval()
    model.loss(tokens[:, :-1], tokens[:, 1:])


def _model(config: TrainedConfig) -> Model:
    torch.manual_seed(0)
    return Model(config.model, config.encoding.name, config.encoding.arguments, config.training.seq_len)


def _random_tokens(config: TrainedConfig, windows: int, length: int) -> Tensor:
    return torch.randint(0, config.model.vocab_size, (windows, length + 1), device=config.training.device)


@dataclass(frozen=True)
class TokenCost:
    """Seconds that a token takes in training, and in evaluation by window length, from short to long."""

    training_s: float
    evaluation_s: Mapping[int, float]

    def evaluation_at(self, length: int) -> float:
        """Seconds of a token in windows of `length`: linear between the measured lengths, as attention's cost is."""
        return float(np.interp(length, list(self.evaluation_s), list(self.evaluation_s.values())))


def measure_token(config: TrainedConfig, model: Model, lengths: Sequence[int], seconds: float) -> TokenCost:
    """Measures training and evaluation at each of `lengths`, eagerly and each for at least `seconds`.

    A training step has the windows of a micro-batch, and a forward pass about EVALUATED_TOKENS inputs.
    """
    training = config.training
    model.to(training.device)

    def now() -> float:
        if training.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def seconds_of(step: Step, tokens: int) -> float:
        step()  # which allocates
        steps, began = 0, now()
        while not steps or now() - began < seconds:
            step()
            steps += 1
        return (now() - began) / (steps * tokens)

    train = step_of(config, model, optimizer_of(model, training), model.loss, training.precision)
    training_s = seconds_of(train, training.micro_batch_size * training.seq_len)
    evaluation_s = {}
    for length in sorted(lengths):
        windows = max(1, EVALUATED_TOKENS // length)
        forward = partial(_forward, model, _random_tokens(config, windows, length))
        evaluation_s[length] = seconds_of(forward, windows * length)
    return TokenCost(training_s, evaluation_s)
