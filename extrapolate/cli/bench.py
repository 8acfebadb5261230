"""extrapolate bench"""

from typing import Annotated

import typer


def bench(
    preset: Annotated[str, typer.Option(help="whose sizes to measure")] = "tiny",
    seq_len: Annotated[int | None, typer.Option(min=2, help="training length  [default: the preset's, or 64]")] = None,
    compile: Annotated[bool, typer.Option("--compile/--no-compile", help="measure compiled training too")] = True,
    seconds: Annotated[float, typer.Option(min=0.1, help="how long to measure each variant")] = 10.0,
) -> None:
    """Measure training speed and memory, beside transformers' Llama and the bare matrix products."""
    import importlib.util

    import pandas as pd

    from extrapolate import benchmark, provenance
    from extrapolate.cli.progress import Progress, say
    from extrapolate.cli.render import print_table

    config = benchmark.bench_config(preset, seq_len)
    variants = [v for v in benchmark.VARIANTS if compile or not v.compiled]
    if importlib.util.find_spec("transformers") is None:
        say("no peer: it needs the transformers package, pip install 'extrapolate[peers]'")
        variants = [v for v in variants if v.who != "transformers"]
    speeds: dict[benchmark.Variant, benchmark.Speed] = {}
    with Progress("variants") as progress:
        for variant, speed in benchmark.measure(config, variants, seconds):
            speeds[variant] = speed
            progress.update("measuring", len(speeds), len(variants))
    rows = []
    for variant in variants:
        speed = speeds[variant]
        peer = speeds.get(benchmark.Variant("transformers", variant.precision, variant.compiled))
        floor = speeds[benchmark.Variant("floor", variant.precision)]
        rows.append(
            {
                "who": variant.who,
                "precision": variant.precision,
                "mode": "" if variant.who == "floor" else "compiled" if variant.compiled else "eager",
                "tokens/s": f"{speed.tokens_per_s:,.0f}",
                "of floor": f"{speed.tokens_per_s / floor.tokens_per_s:.2f}",
                "of transformers": f"{speed.tokens_per_s / peer.tokens_per_s:.2f}" if peer else "",
                "peak MiB": f"{speed.peak_mib:,.0f}",
            }
        )
    best = {who: max(s.tokens_per_s for v, s in speeds.items() if v.who == who) for who in {v.who for v in variants}}
    training = config.training
    title = f"{preset}, L {training.seq_len}, {training.micro_batch_size} windows a step; {provenance.machine()}"
    print_table(pd.DataFrame(rows), title)
    if "transformers" in best:
        print(f"fastest mode of each: extrapolate is {best['extrapolate'] / best['transformers']:.2f}x transformers")
