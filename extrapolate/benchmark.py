"""How fast training and evaluation are here. Every number of a table comes from one run.

Each measurement has a process of its own, so that its peak memory is its own too. A step is a forward pass, a backward
pass, gradient clipping and AdamW, on one micro-batch of random tokens.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from extrapolate import specs
from extrapolate.encodings.plan import PLAIN
from extrapolate.evaluation.losses import BATCH_TOKENS
from extrapolate.machine import children
from extrapolate.machine.cpu_time import CpuTime
from extrapolate.machine.devices import fast_bf16
from extrapolate.machine.memory import keep_freed_memory, lifetime_peak_mib
from extrapolate.model.model import Model
from extrapolate.runs import config as configs
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.presets import preset as preset_sections
from extrapolate.runs.resolve import micro_batch_tokens
from extrapolate.training.optimizer import optimizer_of

WARM_UP_STEPS = 2  # the first of them compiles
LEAST_ROUNDS = 3
MOST_TAKEN = 0.05  # the share of a measurement's time that other programs may take
FACTORS = (1, 16)  # at which encodings are evaluated


@dataclass(frozen=True)
class Variant:
    """What is measured, by the name of one of STEPS, and how."""

    who: str
    precision: str
    compiled: bool = False
    dropout: bool = False


@dataclass(frozen=True)
class Speed:
    """A variant's steps in the order of the rounds, seconds; its tokens per step, peak memory in MiB, and the share of
    its time that other programs took (None if the system does not tell)."""

    seconds: list[float]
    tokens: int
    peak_mib: float
    taken: float | None

    @property
    def tokens_per_s(self) -> float:
        """From the median step time."""
        return self.tokens / statistics.median(self.seconds)

    def times_as_fast_as(self, other: "Speed") -> float | None:
        """The median ratio over the rounds; None if other programs took too much of the time."""
        if any((speed.taken or 0.0) > MOST_TAKEN for speed in (self, other)):
            return None
        return statistics.median(theirs / own for own, theirs in zip(self.seconds, other.seconds, strict=True))


@dataclass(frozen=True)
class EncodingSpeed:
    """Tokens per second: of training steps, and of evaluation by factor (None beyond the encoding's last position).

    The peaks are MiB above what the process held before: evaluating at the largest factor, and with training too.
    """

    training: float
    evaluation: dict[int, float | None]
    evaluation_mib: float
    training_mib: float


def bench_config(preset: str, seq_len: int | None, encoding: str = "rope") -> TrainedConfig:
    """A preset as a run by AdamW would have it on a CPU; the training length is 64 if the preset has none."""
    spec = specs.parse(encoding)
    sections = preset_sections(preset)
    training = {"seq_len": 64, **sections["training"]} | ({"seq_len": seq_len} if seq_len else {})
    training["optimizer"] = "adamw"
    training["micro_batch_tokens"] = micro_batch_tokens(sections["model"]["vocab_size"], "cpu")
    sections["model"].setdefault("kv_heads", sections["model"].get("heads", 4))
    return configs.validate(
        {
            "preset": preset,
            "encoding": {"name": spec.name, "arguments": dict(spec.arguments)},
            "model": sections["model"],
            "training": training,
            "data": {"path": "", "source": "random tokens", "corpus_hash": ""},
        },
        preset,
    )


def groups(config: TrainedConfig, compiled: bool) -> list[list[Variant]]:
    """What is compared: the model in each mode, beside the floor of its precision.

    A preset with dropout is measured with it and without.
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
    setting = model.setting(PLAIN)  # made once, as a training does

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
    """A training step of a model, on random tokens that stay the same."""
    tokens = _random_tokens(config, config.training.micro_batch_size, config.training.seq_len)
    model.train()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
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

    They take turns, step by step: what slows the machine for a while slows all of them.
    """
    with contextlib.ExitStack() as stack:
        workers = {variant: stack.enter_context(children.worker()) for variant in group}
        prepared = [worker.submit(_prepare, config, variant, steps) for variant, worker in workers.items()]
        for each in prepared:
            each.result()
        rounds: list[list[float]] = []
        began = time.perf_counter()
        while len(rounds) < LEAST_ROUNDS or time.perf_counter() - began < seconds * len(workers):
            rounds.append([worker.submit(_timed_step, variant).result() for variant, worker in workers.items()])
        costs = {variant: worker.submit(_cost, variant).result() for variant, worker in workers.items()}
    tokens = config.training.micro_batch_size * config.training.seq_len
    return {
        variant: Speed([times[place] for times in rounds], tokens, *costs[variant])
        for place, variant in enumerate(group)
    }


@dataclass
class _Prepared:
    """What a worker's process keeps between steps: the step, and what others took from it so far."""

    step: Step
    load: CpuTime | None = field(default_factory=lambda: CpuTime(0.0, 0.0, 0.0))


_prepared: dict[Variant, _Prepared] = {}


def _prepare(config: TrainedConfig, variant: Variant, steps: Mapping[str, StepMaker]) -> None:
    keep_freed_memory()
    torch.manual_seed(0)
    if not variant.dropout:
        config = config.model_copy(update={"model": config.model.model_copy(update={"dropout": 0.0})})
    step = steps[variant.who](config, variant)
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
    return lifetime_peak_mib(), None if load is None else load.taken


def measure_encodings(
    names: list[str], preset: str, seq_len: int | None, seconds: float
) -> Iterator[tuple[str, EncodingSpeed]]:
    """Measures each encoding, a spec, in its own process, each quantity for about `seconds`.

    Training is eager, in the precision that `train` would choose; evaluation is fp32.
    Raises UserError on an unknown spec.
    """
    made = [(name, bench_config(preset, seq_len, name)) for name in names]
    for _, config in made:
        _model(config)
    for name, config in made:
        with children.worker() as worker:
            yield name, worker.submit(_encoding_speed, config, seconds).result()


def _encoding_speed(config: TrainedConfig, seconds: float) -> EncodingSpeed:
    keep_freed_memory()
    model = _model(config)
    before = lifetime_peak_mib()
    evaluation = {factor: _evaluation_rate(model, config, factor, seconds) for factor in FACTORS}
    evaluated = lifetime_peak_mib()
    precision = "bf16" if fast_bf16() else "fp32"
    step = step_of(config, model, optimizer_of(model, config.training), model.loss, precision)
    tokens = config.training.micro_batch_size * config.training.seq_len
    training = tokens / _median_seconds(step, seconds)
    return EncodingSpeed(training, evaluation, evaluated - before, lifetime_peak_mib() - before)


def _evaluation_rate(model: Model, config: TrainedConfig, factor: int, seconds: float) -> float | None:
    length = factor * config.training.seq_len
    if model.encoding.max_length is not None and length > model.encoding.max_length:
        return None
    windows = max(1, BATCH_TOKENS // length)
    tokens = _random_tokens(config, windows, length)
    model.eval()

    @torch.inference_mode()
    def forward() -> None:
        model.loss(tokens[:, :-1], tokens[:, 1:])

    return windows * length / _median_seconds(forward, seconds)


def _median_seconds(call: Step, seconds: float) -> float:
    call()  # warms caches and the allocator up
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < LEAST_ROUNDS or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _model(config: TrainedConfig) -> Model:
    torch.manual_seed(0)
    return Model(config.model, config.encoding.name, config.encoding.arguments, config.training.seq_len)


def _random_tokens(config: TrainedConfig, windows: int, length: int) -> Tensor:
    return torch.randint(0, config.model.vocab_size, (windows, length + 1))
