"""extrapolate bench --encodings"""

from dataclasses import asdict

import pandas as pd

from extrapolate.benchmark import encodings as benchmark
from extrapolate.benchmark import rows as table
from extrapolate.cli.render import print_json, print_table
from extrapolate.encodings.base import encodings
from extrapolate.runs import provenance
from extrapolate.terminal import Progress


def show(pe: list[str] | None, preset: str, seq_len: int | None, seconds: float, as_json: bool) -> None:
    """Measures, and prints the table, or its rows as JSON."""
    names = ["rope", *(name for name in pe or encodings.names() if name != "rope")]
    speeds: dict[str, benchmark.EncodingSpeed] = {}
    with Progress("encodings") as progress:
        for name, speed in benchmark.measure_encodings(names, preset, seq_len, seconds):
            speeds[name] = speed
            progress.update("measuring", len(speeds), len(names))
    if as_json:
        print_json(map(asdict, table.of_encodings(preset, speeds)))
        return
    rope = speeds["rope"]

    def beside(rate: float | None, ropes: float | None) -> str:
        return "n/a" if rate is None or ropes is None else f"{rate:,.0f} ({rate / ropes:.2f})"

    rows = [
        {
            "encoding": name,
            "training tokens/s": beside(speed.training, rope.training),
            **{
                f"evaluation tokens/s, {factor}x": beside(speed.evaluation[factor], rope.evaluation[factor])
                for factor in benchmark.FACTORS
            },
            "evaluation MiB": f"{speed.evaluation_mib:,.0f}",
            "peak MiB": f"{speed.training_mib:,.0f}",
        }
        for name, speed in sorted(speeds.items(), key=lambda item: -item[1].training)
    ]
    length = seq_len or "64"
    title = f"{preset}, L {length}, relative to rope in parentheses; {provenance.machine()}"
    print_table(pd.DataFrame(rows), title)
