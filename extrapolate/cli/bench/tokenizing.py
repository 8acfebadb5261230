"""extrapolate bench --tokenize"""

from dataclasses import asdict

import pandas as pd

from extrapolate.benchmark import rows as table
from extrapolate.benchmark import tokenizing as benchmark
from extrapolate.cli.render import print_json, print_table
from extrapolate.runs import provenance
from extrapolate.terminal import Progress


def show(source: str, megabytes: float, busy: int, as_json: bool) -> None:
    """Measures, and prints the table, or its rows as JSON."""
    variants = benchmark.variants()
    speeds: dict[benchmark.Variant, benchmark.Speed] = {}
    with Progress("variants") as progress:
        for variant, speed in benchmark.measure(source, "text", megabytes, variants, busy):
            speeds[variant] = speed
            progress.update("measuring", len(speeds), len(variants))
    if as_json:
        print_json(map(asdict, table.of_tokenizing(speeds)))
        return
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
            **({} if speed.busy_mb_per_s is None else {f"MB/s beside {busy} busy": f"{speed.busy_mb_per_s:.2f}"}),
            "peak MiB": f"{speed.peak_mib:,.0f}",
        }
        for variant, speed in speeds.items()
    ]
    print_table(pd.DataFrame(rows), f"{megabytes:g} MB of {source}; {provenance.machine()}")
    print(f"fastest mode of each: extrapolate is {best['extrapolate'] / best['datasets']:.2f}x datasets.Dataset.map")
