"""What a GPU makes of this program: `make gpu` runs the tests for one, measures training, and writes docs/gpu.md.

Without a GPU it says so, and ends with exit code 2.
"""

import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from extrapolate.benchmark import bench_config
from extrapolate.machine.memory import forget_peak, peak_mib
from extrapolate.model import attention
from extrapolate.model.model import Model
from extrapolate.runs import provenance
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import operations
from extrapolate.training.optimizer import optimizer_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "gpu.md"
NO_GPU = "Error: torch finds no CUDA GPU on this machine, and `make gpu` needs one: docs/gpu.md stays as it is"
PRESETS = {"tiny": (32, 4096), "expe-35m": (32,), "expe-135m": (64,)}  # and the windows of a forward pass
# Precision, whether it is compiled, and whether attention is the fused kernel at any length: a CPU chose when it is.
MODES = (("fp32", False, False), ("bf16", False, False), ("bf16", True, False), ("bf16", True, True))
WARM_UP_STEPS = 5  # the first of them compiles


@dataclass(frozen=True)
class Table:
    """A part of the page: its heading, what is said above the rows, and the rows."""

    heading: str
    words: str
    rows: pd.DataFrame


def page(machine: str, date: str, commit: str, tests: str, tables: Sequence[Table]) -> str:
    """docs/gpu.md, from what was measured."""
    parts = [
        "# On a GPU",
        f"`make gpu` wrote this page on {date}, at commit {commit}, on this machine: {machine}.",
        f"Tests that need a GPU: {tests}.",
    ]
    for table in tables:
        parts += [f"## {table.heading}", table.words, _markdown(table.rows)]
    return "\n\n".join(parts) + "\n"


def _markdown(rows: pd.DataFrame) -> str:
    lines = [list(rows.columns), ["---"] * len(rows.columns), *rows.astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def run_tests() -> tuple[bool, str]:
    """Whether the tests for a GPU pass, and what pytest says of them at its end: `190 passed in 80.12s`."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/gpu", "-p", "no:cacheprovider"]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    print(ended.stdout)
    return ended.returncode == 0, ended.stdout.strip().splitlines()[-1].strip("= ")


def training_table(
    device: str,
    presets: Mapping[str, tuple[int, ...]] = PRESETS,
    modes: Sequence[tuple[str, bool, bool]] = MODES,
    repeats: int = 20,
) -> Table:
    """Tokens per second of one step: forward, backward, clipping, AdamW."""
    rows = []
    explicit_up_to = attention.EXPLICIT_UP_TO
    for preset, (precision, compiled, fused) in itertools.product(presets, modes):
        attention.EXPLICIT_UP_TO = 0 if fused else explicit_up_to
        for windows in presets[preset]:
            forget_peak(device)
            config = bench_config(preset, None)
            tokens = windows * config.training.seq_len
            rate = tokens / _step_seconds(config, windows, precision, compiled, device, repeats)
            rows.append(
                {
                    "preset": preset,
                    "windows": windows,
                    "tokens": f"{tokens:,}",
                    "precision": precision,
                    "mode": f"{'compiled' if compiled else 'eager'}{', fused attention' * fused}",
                    "tokens/s": f"{rate:,.0f}",
                    "TFLOP/s": f"{rate * operations(config) / config.training.tokens / 1e12:.3g}",
                    "peak MiB": f"{peak_mib(device) or 0:,.0f}",
                }
            )
    attention.EXPLICIT_UP_TO = explicit_up_to
    words = (
        "RoPE on random tokens: the median of the steps, each of which ends when the GPU has done it. Operations "
        "follow from the sizes, as in [what the large presets cost](scaling.md#what-the-large-presets-cost)."
    )
    return Table("Training", words, pd.DataFrame(rows))


def _step_seconds(
    config: TrainedConfig, windows: int, precision: str, compiled: bool, device: str, repeats: int
) -> float:
    torch.compiler.reset()  # nothing that was compiled for other sizes
    torch.manual_seed(0)
    model = Model(config.model, "rope", {}, config.training.seq_len).to(device).train()
    optimizer = optimizer_of(model, config.training)
    loss = torch.compile(model.loss) if compiled else model.loss
    tokens = torch.randint(0, config.model.vocab_size, (windows, config.training.seq_len + 1)).to(device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            value = loss(tokens[:, :-1], tokens[:, 1:])
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.training.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return _median_seconds(step, device, repeats)


def _median_seconds(work: Callable[[], Any], device: str, repeats: int) -> float:
    times = []
    for _ in range(WARM_UP_STEPS + repeats):
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[WARM_UP_STEPS:])


def main() -> int:
    if not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 2
    passed, tests = run_tests()
    tables = [training_table("cuda")]
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    libraries = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    PAGE.write_text(
        page(f"{provenance.machine()}, {libraries}", date, provenance.commit(), tests, tables), encoding="utf-8"
    )
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
