"""extrapolate bench --evaluation"""

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from extrapolate.benchmark import evaluation as benchmark
from extrapolate.benchmark import peers
from extrapolate.benchmark import rows as table
from extrapolate.benchmark.training import bench_config
from extrapolate.cli.render import print_json, print_table
from extrapolate.errors import UserError
from extrapolate.runs import provenance
from extrapolate.runs.config import TrainedConfig
from extrapolate.terminal import Progress, say


def show(
    preset: str,
    seq_len: int | None,
    tokens: int,
    protocols: Sequence[str],
    precisions: Sequence[str],
    busy: int,
    as_json: bool,
) -> None:
    """Measures, and prints the table, or its rows as JSON."""
    config = bench_config(preset, seq_len)
    check(config, tokens)
    there = peers.installed()
    for peer in (peer for peer, found in there.items() if not found):
        say(peers.how_to_install(peer))
    variants = benchmark.variants([peer for peer, found in there.items() if found], protocols, precisions)
    costs: dict[benchmark.Variant, benchmark.Cost] = {}
    with Progress("variants") as progress:
        for variant, cost in benchmark.measure(config, variants, tokens, busy):
            costs[variant] = cost
            progress.update("measuring", len(costs), len(variants))
    if as_json:
        print_json(map(asdict, table.of_evaluation(preset, costs)))
        return
    rows = []
    for variant, cost in costs.items():
        ours = costs[benchmark.Variant("extrapolate", variant.protocol, variant.precision)]
        rows.append(
            {
                "protocol": variant.protocol,
                "precision": variant.precision,
                "who": variant.who,
                "seconds": f"{cost.seconds:.1f}",
                "of ours": f"{cost.seconds / ours.seconds:.2f}",
                **_rates(cost, busy),
                "peak MiB": f"{cost.peak_mib:,.0f}",
                "largest difference in loss": f"{cost.furthest(ours):.0e}",
            }
        )
    length, factors = config.training.seq_len, ", ".join(f"{factor}x" for factor in benchmark.FACTORS)
    print_table(pd.DataFrame(rows), f"{preset}, {factors} of {length} tokens; {provenance.machine()}")
    if "windows" in protocols:
        long = benchmark.long_window(config)
        print(f"one window of {benchmark.LONG_WINDOW:,} tokens: {long.seconds:.1f} s, {long.peak_mib:,.0f} MiB")


def _rates(cost: benchmark.Cost, busy: int) -> dict[str, str]:
    if cost.busy_tokens_per_s is None:
        return {}
    return {
        "tokens/s": f"{cost.tokens_per_s:,.0f}",
        f"tokens/s beside {busy} busy": f"{cost.busy_tokens_per_s:,.0f}",
    }


def check(config: TrainedConfig, tokens: int) -> None:
    """Raises UserError if so few tokens cannot be measured."""
    if tokens < (least := benchmark.least_tokens(config)):
        raise UserError(f"--tokens {tokens} holds no window of every factor in each document: give {least} or more")
