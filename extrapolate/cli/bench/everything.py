"""extrapolate bench --all"""

import time
from dataclasses import asdict
from itertools import groupby

import pandas as pd

from extrapolate.benchmark import everything as benchmark
from extrapolate.benchmark import peers
from extrapolate.benchmark.everything import Settings
from extrapolate.benchmark.rows import Row
from extrapolate.benchmark.training import MOST_TAKEN, bench_config
from extrapolate.cli.bench import evaluation
from extrapolate.cli.ending import what_to_say
from extrapolate.cli.render import Column, Kind, print_columns, print_json
from extrapolate.data.sources import open_source
from extrapolate.reports.page import Table
from extrapolate.runs import provenance
from extrapolate.terminal import duration, say


def show(settings: Settings, markdown: bool, as_json: bool) -> None:
    """Measures part after part, and prints one table, also where a part fails or the user stops the rest.

    Raises RuntimeError where a part failed.
    """
    for preset in settings.presets:
        bench_config(preset, settings.seq_len)
    open_source(settings.source)
    evaluation.check(bench_config(benchmark.EVALUATED, settings.seq_len), settings.tokens)
    for peer in (peer for peer, found in peers.installed().items() if not found):
        say(peers.how_to_install(peer))
    rows: list[Row] = []
    failed: list[str] = []
    try:
        parts = benchmark.parts(settings)
        for number, (name, measure) in enumerate(parts.items(), 1):
            began = time.monotonic()
            say(f"part {number} of {len(parts)}: {name}")
            try:
                for row in measure():
                    rows.append(row)
                    say(f"  {row.who}, {row.mode}: {_rate(row.speed, row.unit)} {row.unit}")
            except Exception as error:  # whatever it is, the other parts have their figures
                failed.append(f"{name} ({what_to_say(error)[0]})")
                say(f"{name} failed: {what_to_say(error)[0]}")
            say(f"  {name}: {duration(time.monotonic() - began)}")
    finally:
        if as_json:
            print_json(map(asdict, rows))
        elif rows:
            _print(rows, settings, markdown)
    if failed:
        raise RuntimeError(f"not everything could be measured: {'; '.join(failed)}")


def _print(rows: list[Row], settings: Settings, markdown: bool) -> None:
    title = f"of floor, of the peer: how many times as fast; {provenance.machine()}"
    table = pd.DataFrame([_shown(row, settings.beside) for row in rows])
    if markdown:
        print(f"{title}\n\n{Table(table).markdown()}")
    else:
        for _, alike in groupby(range(len(rows)), key=lambda place: table["what"][place]):
            table.loc[list(alike)[1:], "what"] = ""
        kinds = [Kind.TEXT, Kind.NAME, Kind.NAME, *[Kind.NUMBER] * (table.shape[1] - 3)]
        cells = {header: list(table[header]) for header in table.columns}
        print_columns([Column(header, cells[header], kind) for header, kind in zip(cells, kinds, strict=True)], title)
    if any(row.disturbed for row in rows):
        say(
            f"this machine is busy: other programs took more than {MOST_TAKEN:.0%} of the time, so some ratios are "
            "n/a; measure again when nothing else runs"
        )


def _shown(row: Row, beside: int) -> dict[str, str]:
    def ratio(value: float | None) -> str:
        return ("n/a" if row.disturbed else "") if value is None else f"{value:.2f}"

    busy = "" if row.busy_speed is None else _rate(row.busy_speed, row.unit)
    return {
        "what": f"{row.what}, {row.unit}",
        "who": row.who,
        "mode": row.mode,
        "speed": _rate(row.speed, row.unit),
        "of floor": ratio(row.of_floor),
        "of the peer": ratio(row.of_peer),
        **({f"beside {beside} busy": busy} if beside else {}),
        "peak MiB": "" if row.peak_mib is None else f"{row.peak_mib:,.0f}",
    }


def _rate(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit == "tokens/s" else f"{value:.2f}"
