"""extrapolate bench"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from extrapolate.cli.flags import AsJson
from extrapolate.errors import UserError
from extrapolate.runs.presets import PRESETS

if TYPE_CHECKING:
    from extrapolate.benchmark import BesideRoPE, Speed, Variant

_SECONDS, _SECONDS_ENCODINGS = 10.0, 3.0


def bench(
    encodings: Annotated[
        bool, typer.Option("--encodings", help="measure the training and evaluation of every encoding beside rope")
    ] = False,
    pe: Annotated[
        list[str] | None, typer.Option(help="with --encodings: measure this one beside rope; repeatable")
    ] = None,
    preset: Annotated[str, typer.Option(help=f"the model's sizes: {', '.join(PRESETS)}")] = "tiny",
    seq_len: Annotated[
        int | None, typer.Option(min=2, help="training length L, tokens  [default: the preset's, or 64]")
    ] = None,
    compile: Annotated[bool, typer.Option("--compile/--no-compile", help="measure compiled training too")] = True,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help=f"seconds for each measurement  [default: {_SECONDS:g}; with --encodings {_SECONDS_ENCODINGS:g}]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure speed and memory.

    It shows how fast training is, compared with the bare matrix products, and with --encodings what each encoding
    costs. Each number comes from a single run: close other programs first.
    """
    if pe and not encodings:
        raise UserError("--pe needs --encodings: give both, or leave it out")
    if encodings:
        _show_encodings(pe, preset, seq_len, seconds or _SECONDS_ENCODINGS, as_json)
    else:
        _show_training(preset, seq_len, compile, seconds or _SECONDS, as_json)


def _show_training(preset: str, seq_len: int | None, compile: bool, seconds: float, as_json: bool) -> None:
    import pandas as pd

    from extrapolate.benchmark import MOST_TAKEN, bench_config, groups, measure_training
    from extrapolate.cli.render import print_json, print_table
    from extrapolate.runs import provenance
    from extrapolate.terminal import ProgressBar, say

    config = bench_config(preset, seq_len)
    found: list[tuple[Variant, Speed, Speed]] = []  # with the speed of the floor
    with ProgressBar("modes") as progress:
        chosen = groups(config, compile)
        for done, group in enumerate(chosen, 1):
            speeds = measure_training(config, group, seconds)
            found += [(variant, speed, speeds[group[-1]]) for variant, speed in speeds.items()]
            progress.update("measuring", done, len(chosen))
    if as_json:
        print_json(json_of_training(preset, *each) for each in found)
        return
    training = config.training
    title = f"{preset}, L {training.seq_len}, {training.micro_batch_size} windows a step; {provenance.machine()}"
    print_table(pd.DataFrame([row_of(*each, with_dropout=config.model.dropout > 0) for each in found]), title)
    taken = max((speed.taken or 0.0 for _, speed, _ in found), default=0.0)
    if taken > MOST_TAKEN:
        say(
            f"this machine is busy: other programs took up to {taken:.0%} of the time in which a program here "
            "wanted to compute, so ratios are n/a there; measure again when nothing else runs"
        )


def row_of(variant: "Variant", speed: "Speed", floor: "Speed", with_dropout: bool) -> dict[str, str]:
    """A row of the table. A ratio is n/a if other programs took part of the time."""
    ratio = speed.times_as_fast_as(floor)
    return {
        "who": variant.who,
        "precision": variant.precision,
        "mode": _mode(variant),
        **({"dropout": "yes" if variant.dropout else ""} if with_dropout else {}),
        "tokens/s": f"{speed.tokens_per_s:,.0f}",
        "of floor": "n/a" if ratio is None else f"{ratio:.2f}",
        "peak MiB": f"{speed.peak_mib:,.0f}",
        "taken by others": "n/a" if speed.taken is None else f"{speed.taken:.0%}",
    }


def json_of_training(preset: str, variant: "Variant", speed: "Speed", floor: "Speed") -> dict[str, Any]:
    """A row of `bench --json`."""
    mode = [variant.precision, _mode(variant), "dropout" if variant.dropout else ""]
    ratio = speed.times_as_fast_as(floor)
    return {
        "what": f"training {preset}", "who": variant.who, "mode": " ".join(filter(None, mode)),
        "tokens_per_s": speed.tokens_per_s, "of_floor": ratio, "of_rope": None, "peak_mib": speed.peak_mib,
        "disturbed": ratio is None,
    }  # fmt: skip


def _mode(variant: "Variant") -> str:
    return "" if variant.who == "floor" else "compiled" if variant.compiled else "eager"


def _show_encodings(pe: list[str] | None, preset: str, seq_len: int | None, seconds: float, as_json: bool) -> None:
    import pandas as pd

    from extrapolate import benchmark
    from extrapolate.cli.render import print_json, print_table
    from extrapolate.encodings.base import encodings
    from extrapolate.runs import provenance
    from extrapolate.terminal import ProgressBar

    names = ["rope", *(name for name in pe or encodings.names() if name != "rope")]
    speeds: dict[str, dict[str, BesideRoPE]] = {}
    with ProgressBar("encodings") as progress:
        for name, speed in benchmark.measure_encodings(names, preset, seq_len, seconds):
            speeds[name] = speed
            progress.update("measuring", len(speeds), len(names))
    if as_json:
        print_json(row for name, speed in speeds.items() for row in json_of_encoding(preset, name, speed))
        return

    training = benchmark.TRAINING
    longest = benchmark.evaluation(max(benchmark.FACTORS))
    rows = [
        {
            "encoding": name,
            "training tokens/s": _beside(speed[training]),
            **{
                f"evaluation tokens/s, {factor}x": _beside(speed.get(benchmark.evaluation(factor)))
                for factor in benchmark.FACTORS
            },
            "evaluation MiB": f"{speed[longest].own.peak_mib:,.0f}" if longest in speed else "n/a",
            "peak MiB": f"{speed[training].own.peak_mib:,.0f}",
        }
        for name, speed in sorted(speeds.items(), key=lambda item: -(item[1][training].ratio or 0.0))
    ]
    title = f"{preset}, L {seq_len or 64}, relative to rope in parentheses; {provenance.machine()}"
    print_table(pd.DataFrame(rows), title)


def _beside(speed: "BesideRoPE | None") -> str:
    if speed is None:
        return "n/a"
    return f"{speed.own.tokens_per_s:,.0f} ({'n/a' if speed.ratio is None else f'{speed.ratio:.2f}'})"


def json_of_encoding(preset: str, name: str, speed: "dict[str, BesideRoPE]") -> list[dict[str, Any]]:
    """The rows of `bench --encodings --json` for an encoding, without lengths that it does not reach."""
    from extrapolate.benchmark import TRAINING

    return [
        {
            "what": f"{'training' if mode == TRAINING else 'evaluation'} {preset}", "who": name, "mode": mode,
            "tokens_per_s": beside.own.tokens_per_s, "of_floor": None, "of_rope": beside.ratio,
            "peak_mib": beside.own.peak_mib, "disturbed": beside.ratio is None,
        }
        for mode, beside in speed.items()
    ]  # fmt: skip
