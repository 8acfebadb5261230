"""extrapolate bench"""

from dataclasses import asdict

import pandas as pd

from extrapolate.benchmark import peers
from extrapolate.benchmark import rows as table
from extrapolate.benchmark import training as benchmark
from extrapolate.benchmark.training import MOST_TAKEN, Speed, Variant
from extrapolate.cli.render import print_json, print_table
from extrapolate.runs import provenance
from extrapolate.terminal import Progress, say


def show(preset: str, seq_len: int | None, compile: bool, seconds: float, busy: int, as_json: bool) -> None:
    """Measures, and prints the table, or its rows as JSON."""
    config = benchmark.bench_config(preset, seq_len)
    if not (peer := peers.installed()["transformers"]):
        say(peers.how_to_install("transformers"))
    groups = benchmark.groups(config, peer, compile)
    rows: list[dict[str, str]] = []
    found: list[table.Row] = []
    best: dict[str, float] = {}
    taken: list[float] = []
    with Progress("modes") as progress:
        for done, group in enumerate(groups, 1):
            speeds = benchmark.measure(config, group, seconds, busy)
            found += table.of_training(preset, speeds)
            rows += rows_of(speeds, with_dropout=config.model.dropout > 0, busy=busy)
            taken += [speed.taken for speed in speeds.values() if speed.taken is not None]
            for variant, speed in speeds.items():
                if not variant.dropout:
                    best[variant.who] = max(speed.tokens_per_s, best.get(variant.who, 0.0))
            progress.update("measuring", done, len(groups))
    if as_json:
        print_json(map(asdict, found))
        return
    training = config.training
    title = f"{preset}, L {training.seq_len}, {training.micro_batch_size} windows a step; {provenance.machine()}"
    print_table(pd.DataFrame(rows), title)
    if max(taken, default=0.0) > MOST_TAKEN:
        say(
            f"this machine is busy: other programs took up to {max(taken):.0%} of the time in which a program here "
            "wanted to compute, so ratios are n/a there; measure again when nothing else runs"
        )
    elif peer:
        print(f"fastest mode of each: extrapolate is {best['extrapolate'] / best['transformers']:.2f}x transformers")


def rows_of(speeds: dict[Variant, Speed], with_dropout: bool, busy: int = 0) -> list[dict[str, str]]:
    """A group's rows of the table. A ratio of times that other programs took a part of means nothing."""
    named = {variant.who: speed for variant, speed in speeds.items()}

    def ratio(speed: Speed, other: str) -> str:
        if other not in named:
            return ""
        found = speed.times_as_fast_as(named[other])
        return "n/a" if found is None else f"{found:.2f}"

    def beside(speed: Speed) -> dict[str, str]:
        rate = speed.busy_tokens_per_s
        return {} if rate is None else {f"tokens/s beside {busy} busy": f"{rate:,.0f}"}

    return [
        {
            "who": variant.who,
            "precision": variant.precision,
            "mode": "" if variant.who == "floor" else "compiled" if variant.compiled else "eager",
            **({"dropout": "yes" if variant.dropout else ""} if with_dropout else {}),
            "tokens/s": f"{speed.tokens_per_s:,.0f}",
            "of floor": ratio(speed, "floor"),
            "of transformers": ratio(speed, "transformers"),
            **beside(speed),
            "peak MiB": f"{speed.peak_mib:,.0f}",
            "taken by others": "n/a" if speed.taken is None else f"{speed.taken:.0%}",
        }
        for variant, speed in speeds.items()
    ]
