"""extrapolate bench --start-up"""

from dataclasses import asdict

import pandas as pd

from extrapolate.benchmark import rows as table
from extrapolate.benchmark import startup as benchmark
from extrapolate.cli.render import print_json, print_table
from extrapolate.runs import provenance


def show(busy: int, as_json: bool) -> None:
    """Measures, and prints the table, or its rows as JSON."""
    starts = benchmark.measure(benchmark.programs(), beside=busy)
    if as_json:
        print_json(map(asdict, table.of_startup(starts)))
        return
    rows = [
        {
            "who": program.who,
            "what": program.shown,
            "seconds": f"{start.median:.2f}",
            "of floor": f"{start.times_as_fast_as(starts[benchmark.FLOOR]):.2f}",
            **({} if start.busy_median is None else {f"seconds beside {busy} busy": f"{start.busy_median:.2f}"}),
        }
        for program, start in starts.items()
    ]
    print_table(pd.DataFrame(rows), f"from the start of a program to its end; {provenance.machine()}")
