"""extrapolate bench"""

from typing import TYPE_CHECKING, Annotated

import typer

from extrapolate.cli.registered import protocols, registered
from extrapolate.errors import UserError
from extrapolate.runs.presets import PRESETS

if TYPE_CHECKING:
    from extrapolate.benchmark.training import Speed, Variant

BUSY = 0.05  # the share of a measurement's time that other programs may take


def bench(
    preset: Annotated[str, typer.Option(help=f"the model's sizes: {', '.join(PRESETS)}")] = "tiny",
    seq_len: Annotated[
        int | None, typer.Option(min=2, help="training length L, tokens  [default: the preset's, or 64]")
    ] = None,
    compile: Annotated[bool, typer.Option("--compile/--no-compile", help="measure compiled training too")] = True,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="seconds for each measurement  [default: 10; with --encodings 3]")
    ] = None,
    encodings: Annotated[bool, typer.Option("--encodings", help="measure every encoding beside rope")] = False,
    evaluation: Annotated[
        bool,
        typer.Option("--evaluation", help="measure an evaluation at five lengths, beside a plain loop and lm-eval"),
    ] = False,
    tokens: Annotated[
        int, typer.Option(min=1, help="with --evaluation: how many tokens the protocol windows scores")
    ] = 196_608,
    protocol: Annotated[str, typer.Option(help=f"with --evaluation: {protocols()}, or several")] = ",".join(
        registered("evaluation/protocols")
    ),
    precision: Annotated[str, typer.Option(help="with --evaluation: fp32, bf16, or both")] = "fp32,bf16",
    tokenize: Annotated[
        bool, typer.Option("--tokenize", help="measure the tokenising of text, beside datasets.Dataset.map")
    ] = False,
    source: Annotated[str, typer.Option(help="with --tokenize: whose text, as for tokenize")] = "stdlib",
    megabytes: Annotated[float, typer.Option(min=0.1, help="with --tokenize: how much text")] = 64.0,
    pe: Annotated[
        list[str] | None, typer.Option(help="with --encodings: measure this one beside rope; repeatable")
    ] = None,
) -> None:
    """Measure training speed and memory.

    They stand beside those of transformers' Llama and of the bare matrix products.
    """
    if evaluation:
        if seconds is not None:
            raise UserError("--seconds is for training: an evaluation takes as long as its --tokens")
        _bench_evaluation(preset, seq_len, tokens, protocol, precision)
    elif tokenize:
        _bench_tokenizing(source, megabytes)
    elif encodings:
        _bench_encodings(pe, preset, seq_len, 3.0 if seconds is None else seconds)
    else:
        _bench_training(preset, seq_len, compile, 10.0 if seconds is None else seconds)


def _bench_encodings(pe: list[str] | None, preset: str, seq_len: int | None, seconds: float) -> None:
    import pandas as pd

    from extrapolate.benchmark.encodings import FACTORS, EncodingSpeed, measure_encodings
    from extrapolate.cli.progress import Progress
    from extrapolate.cli.render import print_table
    from extrapolate.encodings.base import encodings
    from extrapolate.runs import provenance

    names = ["rope", *(name for name in pe or encodings.names() if name != "rope")]
    speeds: dict[str, EncodingSpeed] = {}
    with Progress("encodings") as progress:
        for name, speed in measure_encodings(names, preset, seq_len, seconds):
            speeds[name] = speed
            progress.update("measuring", len(speeds), len(names))
    rope = speeds["rope"]

    def beside(rate: float | None, ropes: float | None) -> str:
        return "n/a" if rate is None or ropes is None else f"{rate:,.0f} ({rate / ropes:.2f})"

    rows = [
        {
            "encoding": name,
            "training tokens/s": beside(speed.training, rope.training),
            **{
                f"evaluation tokens/s, {factor}x": beside(speed.evaluation[factor], rope.evaluation[factor])
                for factor in FACTORS
            },
            "evaluation MiB": f"{speed.evaluation_mib:,.0f}",
            "peak MiB": f"{speed.training_mib:,.0f}",
        }
        for name, speed in sorted(speeds.items(), key=lambda item: -item[1].training)
    ]
    length = seq_len or "64"
    title = f"{preset}, L {length}, relative to rope in parentheses; {provenance.machine()}"
    print_table(pd.DataFrame(rows), title)


def _bench_tokenizing(source: str, megabytes: float) -> None:
    import pandas as pd

    from extrapolate.benchmark import tokenizing as benchmark
    from extrapolate.cli.progress import Progress
    from extrapolate.cli.render import print_table
    from extrapolate.runs import provenance

    variants = benchmark.variants()
    speeds: dict[benchmark.Variant, benchmark.Speed] = {}
    with Progress("variants") as progress:
        for variant, speed in benchmark.measure(source, "text", megabytes, variants):
            speeds[variant] = speed
            progress.update("measuring", len(speeds), len(variants))
    best = {
        who: max(speed.mb_per_s for variant, speed in speeds.items() if variant.who == who)
        for who in ("extrapolate", "datasets")
    }
    rows = [
        {
            "who": variant.who,
            "processes": str(variant.processes),
            "call": f"{variant.call}, {variant.batch} documents" if variant.call else "",
            "seconds": f"{speed.seconds:.1f}",
            "MB/s": f"{speed.mb_per_s:.2f}",
            "of the best datasets": f"{speed.mb_per_s / best['datasets']:.2f}",
            "peak MiB": f"{speed.peak_mib:,.0f}",
        }
        for variant, speed in speeds.items()
    ]
    print_table(pd.DataFrame(rows), f"{megabytes:g} MB of {source}; {provenance.machine()}")
    print(f"fastest mode of each: extrapolate is {best['extrapolate'] / best['datasets']:.2f}x datasets.Dataset.map")


def _bench_evaluation(preset: str, seq_len: int | None, tokens: int, protocol: str, precision: str) -> None:
    import importlib.util

    import pandas as pd

    from extrapolate.benchmark import evaluation as benchmark
    from extrapolate.benchmark.training import bench_config
    from extrapolate.cli.progress import Progress, say
    from extrapolate.cli.render import print_table
    from extrapolate.runs import provenance

    config = bench_config(preset, seq_len)
    if tokens < (least := benchmark.least_tokens(config)):
        raise UserError(f"--tokens {tokens} holds no window of every factor in each document: give {least} or more")
    chosen = _chosen(protocol, "protocol", list(registered("evaluation/protocols")))
    precisions = _chosen(precision, "precision", ["fp32", "bf16"])
    peers = []
    for name, needs, extra in (
        ("transformers", ["transformers"], "peers"),
        ("lm_eval", ["lm_eval", "transformers", "accelerate"], "lm-eval"),
    ):
        if all(importlib.util.find_spec(package) is not None for package in needs):
            peers.append(name)
        else:
            say(f"no {extra} to compare with: pip install 'extrapolate[{extra}]'")
    variants = benchmark.variants(peers, chosen, precisions)
    costs: dict[benchmark.Variant, benchmark.Cost] = {}
    with Progress("variants") as progress:
        for variant, cost in benchmark.measure(config, variants, tokens):
            costs[variant] = cost
            progress.update("measuring", len(costs), len(variants))
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
                "peak MiB": f"{cost.peak_mib:,.0f}",
                "largest difference in loss": f"{cost.furthest(ours):.0e}",
            }
        )
    length, factors = config.training.seq_len, ", ".join(f"{factor}x" for factor in benchmark.FACTORS)
    print_table(pd.DataFrame(rows), f"{preset}, {factors} of {length} tokens; {provenance.machine()}")
    if "windows" in chosen:
        long = benchmark.long_window(config)
        print(f"one window of {benchmark.LONG_WINDOW:,} tokens: {long.seconds:.1f} s, {long.peak_mib:,.0f} MiB")


def _chosen(text: str, what: str, known: list[str]) -> list[str]:
    from extrapolate.specs import did_you_mean

    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UserError(f"unknown {what} '{name}'; {did_you_mean(name, known)}")
    if not names:
        raise UserError(f"name at least one {what}: {', '.join(known)}")
    return names


def _bench_training(preset: str, seq_len: int | None, compile: bool, seconds: float) -> None:
    import importlib.util

    import pandas as pd

    from extrapolate.benchmark import training as benchmark
    from extrapolate.cli.progress import Progress, say
    from extrapolate.cli.render import print_table
    from extrapolate.runs import provenance

    config = benchmark.bench_config(preset, seq_len)
    if not (peer := importlib.util.find_spec("transformers") is not None):
        say("no peer: it needs the transformers package, pip install 'extrapolate[peers]'")
    groups = benchmark.groups(config, peer, compile)
    rows = []
    best: dict[str, float] = {}
    taken: list[float] = []
    with Progress("modes") as progress:
        for done, group in enumerate(groups, 1):
            speeds = benchmark.measure(config, group, seconds)
            rows += _rows(speeds, with_dropout=config.model.dropout > 0)
            taken += [speed.taken for speed in speeds.values() if speed.taken is not None]
            for variant, speed in speeds.items():
                if not variant.dropout:
                    best[variant.who] = max(speed.tokens_per_s, best.get(variant.who, 0.0))
            progress.update("measuring", done, len(groups))
    training = config.training
    title = f"{preset}, L {training.seq_len}, {training.micro_batch_size} windows a step; {provenance.machine()}"
    print_table(pd.DataFrame(rows), title)
    if max(taken, default=0.0) > BUSY:
        say(
            f"this machine is busy: other programs took up to {max(taken):.0%} of the time in which a program here "
            "wanted to compute, so ratios are n/a there; measure again when nothing else runs"
        )
    elif peer:
        print(f"fastest mode of each: extrapolate is {best['extrapolate'] / best['transformers']:.2f}x transformers")


def _rows(speeds: "dict[Variant, Speed]", with_dropout: bool) -> list[dict[str, str]]:
    """A group's rows of the table. A ratio of times that other programs took a part of means nothing."""
    named = {variant.who: speed for variant, speed in speeds.items()}

    def ratio(speed: "Speed", other: str) -> str:
        if other not in named:
            return ""
        busy = any((x.taken or 0.0) > BUSY for x in (speed, named[other]))
        return "n/a" if busy else f"{speed.times_as_fast_as(named[other]):.2f}"

    return [
        {
            "who": variant.who,
            "precision": variant.precision,
            "mode": "" if variant.who == "floor" else "compiled" if variant.compiled else "eager",
            **({"dropout": "yes" if variant.dropout else ""} if with_dropout else {}),
            "tokens/s": f"{speed.tokens_per_s:,.0f}",
            "of floor": ratio(speed, "floor"),
            "of transformers": ratio(speed, "transformers"),
            "peak MiB": f"{speed.peak_mib:,.0f}",
            "taken by others": "n/a" if speed.taken is None else f"{speed.taken:.0%}",
        }
        for variant, speed in speeds.items()
    ]
