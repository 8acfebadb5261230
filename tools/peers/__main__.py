"""The speed of this program beside others', for docs/speed.md: python tools/peers [PART ...]

Parts: training, evaluation, tokenising, start-up; default: all of them, in 10 to 15 minutes. It needs the packages of
`pip install -e '.[peers,lm-eval]'`. The table goes to stdout, in Markdown, also if a part fails or Ctrl-C stops it.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import evaluation_speed
import pandas as pd
import startup_speed
import tokenizing_speed
import training_speed

from extrapolate.evaluation.protocols.base import protocols
from extrapolate.reports.page import Table
from extrapolate.runs import provenance

PARTS: Mapping[str, Any] = {
    "training": training_speed.rows,
    "evaluation": evaluation_speed.rows,
    "tokenising": tokenizing_speed.rows,
    "start-up": startup_speed.rows,
}


def arguments() -> argparse.ArgumentParser:
    """What is measured, and for how long."""
    parser = argparse.ArgumentParser(prog="python tools/peers", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--preset", nargs="+", default=["tiny", "expe-35m"], help="models that are trained")
    parser.add_argument("--seq-len", type=int, help="training length L, tokens (default: the preset's, or 64)")
    parser.add_argument("--no-compile", action="store_true", help="do not measure compiled training")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure of training")
    parser.add_argument("--tokens", type=int, default=12_288, help="that the protocol windows scores")
    parser.add_argument("--protocol", nargs="+", default=protocols.names(), help="of the evaluation")
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], help="of the evaluation")
    parser.add_argument("--source", default="stdlib", help="whose text is tokenised")
    parser.add_argument("--megabytes", type=float, default=8.0, help="of text that are tokenised")
    parser.add_argument("--rounds", type=int, default=3, help="of starts")
    parser.add_argument("--busy", type=int, default=1, help="programs that compute beside a second measurement")
    return parser


def measured(options: argparse.Namespace, failed: list[str]) -> Iterator[dict[str, object]]:
    """The rows of every part, as they are measured; a part that fails is named in `failed`."""
    for part in options.parts or PARTS:
        print(part, file=sys.stderr)
        try:
            for row in PARTS[part](options):
                print(f"  {' '.join(map(str, row.values()))}", file=sys.stderr)
                yield row
        except Exception as error:  # whatever it is, the other parts have their figures
            failed.append(f"{part}: {type(error).__name__}: {error}")


def main() -> None:
    """Measures, and prints the table."""
    options = arguments().parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        sys.exit(f"unknown parts {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    rows: list[dict[str, object]] = []
    failed: list[str] = []
    try:
        rows.extend(measured(options, failed))
    finally:
        if rows:
            print(f"{provenance.machine()}\n\n{Table(pd.DataFrame(rows).map(shown)).markdown()}")
    if failed:
        sys.exit("\n".join(failed))


def shown(value: object) -> str:
    """A cell: three digits or more of a number, nothing if there is no value."""
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.0e}" if 0 < value < 1e-3 else f"{value:.2f}" if value < 100 else f"{value:,.0f}"
    return str(value)


if __name__ == "__main__":
    main()
