"""How much of what longer context offers a model takes, on text whose best possible loss is known."""

import pandas as pd

from extrapolate.report.seeds import counts


def has_optimum(rows: pd.DataFrame) -> bool:
    """Whether every row knows the least possible loss."""
    return bool(rows["optimum_loss"].notna().all())


def optimum_by_ev(rows: pd.DataFrame, order: list[str]) -> pd.DataFrame:
    """`Model`, `Loss (ev=1)`, ..., `Gain captured (ev=2)`, ..., `Seeds`: means over seeds, the optimum first.

    `rows` are one protocol's, on one set of targets. The gain captured is (loss at 1x - loss at k) / (optimum at 1x
    - optimum at k): 1 where all that more context can give is taken, 0 where nothing is, below where context harms.
    Where more context can give nothing there is none, and none at all where 1x was not evaluated.
    """
    optimum = rows.groupby("factor")["optimum_loss"].mean().sort_index()
    losses = rows.pivot_table(index="model", columns="factor", values="loss", dropna=False).loc[order, optimum.index]
    table = pd.concat([optimum.to_frame("optimum").T, losses])
    table.columns = [f"Loss (ev={factor:g})" for factor in table.columns]
    if 1.0 in optimum.index:
        offered = optimum[1.0] - optimum
        gains = losses.mul(-1).add(losses[1.0], axis=0).div(offered.where(offered > 0), axis=1)
        for factor in optimum.index[optimum.index > 1]:
            table[f"Gain captured (ev={factor:g})"] = gains[factor]
    table["Seeds"] = counts(rows).reindex(table.index).astype("Int64")
    table.insert(0, "Model", [*table.index])
    return table.reset_index(drop=True)
