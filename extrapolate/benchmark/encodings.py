"""How fast each encoding trains and evaluates, beside RoPE: every number of one table from one run."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from extrapolate import specs
from extrapolate.benchmark import process
from extrapolate.benchmark.training import bench_config
from extrapolate.evaluation.losses import BATCH_TOKENS
from extrapolate.machine.allocator import keep_freed_memory
from extrapolate.machine.devices import fast_bf16
from extrapolate.model.decoder import Model
from extrapolate.runs.config import TrainedConfig
from extrapolate.training.optimizer import optimizer_of

FACTORS = (1, 16)
LEAST_REPEATS = 3


@dataclass(frozen=True)
class EncodingSpeed:
    """Tokens per second: of training steps, and of evaluation by factor (None beyond the encoding's last position).

    The peaks are MiB above what the process held before: evaluating at the largest factor, and with training too.
    """

    training: float
    evaluation: dict[int, float | None]
    evaluation_mib: float
    training_mib: float


def measure_encodings(
    names: list[str], preset: str, seq_len: int | None, seconds: float
) -> Iterator[tuple[str, EncodingSpeed]]:
    """Measures each encoding, a spec, in a process of its own, each quantity for about so many seconds.

    Training is eager, in the precision that `train` would choose; evaluation is fp32.
    Raises UserError on an unknown spec.
    """
    configs = [(name, _config(name, preset, seq_len)) for name in names]
    for _, config in configs:
        _model(config)
    for name, config in configs:
        yield name, process.alone(_measure, config, seconds)


def _config(name: str, preset: str, seq_len: int | None) -> TrainedConfig:
    spec = specs.parse(name)
    config = bench_config(preset, seq_len)
    encoding = config.encoding.model_copy(update={"name": spec.name, "arguments": dict(spec.arguments)})
    return config.model_copy(update={"encoding": encoding})


def _model(config: TrainedConfig) -> Model:
    torch.manual_seed(0)
    return Model(config.model, config.encoding.name, config.encoding.arguments, config.training.seq_len)


def _measure(config: TrainedConfig, seconds: float) -> EncodingSpeed:
    keep_freed_memory()
    model = _model(config)
    before = process.peak_memory_mib()
    evaluation = {factor: _evaluation(model, factor * config.training.seq_len, seconds) for factor in FACTORS}
    evaluated = process.peak_memory_mib()
    training = _training(model, config, seconds)
    return EncodingSpeed(training, evaluation, evaluated - before, process.peak_memory_mib() - before)


def _evaluation(model: Model, length: int, seconds: float) -> float | None:
    if model.encoding.max_length is not None and length > model.encoding.max_length:
        return None
    windows = max(1, BATCH_TOKENS // length)
    tokens = torch.randint(0, model.config.vocab_size, (windows, length + 1))
    model.eval()

    @torch.inference_mode()
    def forward() -> None:
        model.loss(tokens[:, :-1], tokens[:, 1:])

    return windows * length / _median_seconds(forward, seconds)


def _training(model: Model, config: TrainedConfig, seconds: float) -> float:
    windows, length = config.training.micro_batch_size, config.training.seq_len
    tokens = torch.randint(0, config.model.vocab_size, (windows, length + 1))
    optimizer = optimizer_of(model, config.training)
    model.train()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=fast_bf16()):
            loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return windows * length / _median_seconds(step, seconds)


def _median_seconds(call: Callable[[], None], seconds: float) -> float:
    call()  # warms caches and the allocator up
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < LEAST_REPEATS or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
