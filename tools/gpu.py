"""What a GPU makes of this program: `make gpu` runs the tests for one, measures, compares, and writes docs/gpu.md.

Without a GPU it says so, and ends with exit code 2.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import extrapolate as xt
from extrapolate.benchmark import bench_config
from extrapolate.data.store import Store
from extrapolate.machine.memory import forget_peak, peak_mib
from extrapolate.model.model import Model
from extrapolate.runs import provenance
from extrapolate.training.optimizer import optimizer_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "gpu.md"
NO_GPU = "Error: torch finds no CUDA GPU on this machine, and `make gpu` needs one: docs/gpu.md stays as it is"
PRESETS = {"tiny": (64, 512, 4096), "expe-35m": (16, 64)}  # and how many windows are trained on at once
COMPARED = ("rope", "expe", "alibi", "none")
FACTORS = (1, 2, 4, 8, 16)
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
    device: str, presets: dict[str, tuple[int, ...]] = PRESETS, modes: Sequence[bool] = (False, True), repeats: int = 20
) -> Table:
    """Tokens per second of one step: forward, backward, clipping, AdamW."""
    rows = []
    for preset, batches in presets.items():
        for windows in batches:
            for precision in ("fp32", "bf16"):
                for compiled in modes:
                    forget_peak(device)
                    seconds = _step_seconds(preset, windows, precision, compiled, device, repeats)
                    length = bench_config(preset, None).training.seq_len
                    rows.append(
                        {
                            "preset": preset,
                            "windows": windows,
                            "tokens": windows * length,
                            "precision": precision,
                            "mode": "compiled" if compiled else "eager",
                            "tokens/s": f"{windows * length / seconds:,.0f}",
                            "peak MiB": f"{peak_mib(device) or 0:,.0f}",
                        }
                    )
    words = "RoPE on random tokens: the median step, which ends when the GPU has done it."
    return Table("Training", words, pd.DataFrame(rows))


def _step_seconds(preset: str, windows: int, precision: str, compiled: bool, device: str, repeats: int) -> float:
    config = bench_config(preset, None)
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


def comparison_tables(
    folder: Path, data: Store, device: str, *, seq_len: int = 64, tokens: int = 1_500_000
) -> list[Table]:
    """A small comparison: what each encoding's training took, and its losses at every factor."""
    trained, losses, speeds = [], [], []
    for name in COMPARED:
        run = xt.train(name, data=data, out=folder / name, device=device, seq_len=seq_len, tokens=tokens)
        log = pd.read_parquet(run.path / "metrics.parquet")
        found = xt.evaluate(run, data=data, factors=FACTORS, protocols=["windows"], device=device)
        found = found[found["extension"] == found["extension"].iloc[0]].set_index("factor")
        label = found["model"].iloc[0]
        trained.append(
            {
                "model": label,
                "validation loss": f"{log['val_loss'].dropna().iloc[-1]:.3f}",
                "seconds": f"{run.training_seconds():.0f}",
                "tokens/s": f"{log['tokens_per_s'].median():,.0f}",
            }
        )
        losses.append({"model": label} | {f"{factor}x": f"{found['loss'][factor]:.3f}" for factor in FACTORS})
        speeds.append({"model": label} | {f"{factor}x": f"{found['tokens_per_s'][factor]:,.0f}" for factor in FACTORS})
    parts = {
        "training": ("`extrapolate train`, preset `tiny`.", trained),
        "losses": ("Nats per token: `extrapolate eval-lengths`, protocol `windows`.", losses),
        "evaluation speed": ("Inputs per second of the same evaluation.", speeds),
    }
    return [Table(f"A small comparison: {name}", words, pd.DataFrame(rows)) for name, (words, rows) in parts.items()]


def main() -> int:
    if not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 2
    passed, tests = run_tests()
    with tempfile.TemporaryDirectory() as name:
        store = xt.tokenize("stdlib", out=Path(name) / "stdlib")
        tables = [training_table("cuda"), *comparison_tables(Path(name), store, "cuda")]
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    libraries = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    PAGE.write_text(
        page(f"{provenance.machine()}, {libraries}", date, provenance.commit(), tests, tables), encoding="utf-8"
    )
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
