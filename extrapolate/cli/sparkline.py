"""Losses by length as a line of blocks, a character a length."""

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

LOSS = re.compile(r"Loss \(ev=.*\)")  # the header of a column of losses
BESIDE_CONTROL = re.compile(r"ev=.*")  # in a table with a column `control`
BLOCKS = "▁▂▃▄▅▆▇█"
MISSING = "·"
LEAST, MOST = 0.1, 2.0  # nats from the lowest block to the highest: noise is not blown up, nor the rest made flat


def sparklines(table: "pd.DataFrame") -> list[str] | None:
    """A line for each row of a table of text, all on one scale; None where it does not hold losses at several lengths.

    What has no loss is MISSING. A loss that is MOST above the lowest one of the table, or more, is the highest block.
    """
    header = BESIDE_CONTROL if "control" in table.columns else LOSS
    columns = [column for column in table.columns if header.fullmatch(str(column))]
    try:
        losses = [[None if cell == "n/a" else float(cell) for cell in row] for row in table[columns].to_numpy()]
    except (TypeError, ValueError):  # differences with their intervals, say
        return None
    known = [loss for row in losses for loss in row if loss is not None and math.isfinite(loss)]
    if len(columns) < 2 or not known:
        return None
    low = min(known)
    step = min(MOST, max(LEAST, max(known) - low)) / (len(BLOCKS) - 1)

    def block(loss: float | None) -> str:
        if loss is None or math.isnan(loss):
            return MISSING
        return BLOCKS[round(min((loss - low) / step, len(BLOCKS) - 1))]

    return ["".join(map(block, row)) for row in losses]
