"""Plots, by matplotlib, to files."""

from pathlib import Path

import pandas as pd

from extrapolate import files


def loss_against_length(rows: pd.DataFrame, order: list[str], title: str, path: Path) -> None:
    """Draws the mean loss of each model against the evaluation length, and the best of the controls as a line.

    `rows` are one protocol's, on one set of targets; the file's suffix decides its format.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "extrapolate"  # the same rows give the same file
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    colours = plt.get_cmap("tab10")
    runs = list(dict.fromkeys(rows.set_index("model").loc[order, "run"]))
    for model in order:
        mine = rows[rows["model"] == model].groupby("factor")["loss"].mean()
        run = rows.loc[rows["model"] == model, "run"].iloc[0]
        extended = rows.loc[rows["model"] == model, "extension"].iloc[0] != "none"
        axes.plot(
            mine.index, mine, label=model, color=colours(runs.index(run) % 10),
            marker="s" if extended else "o", linestyle=":" if extended else "-",
        )  # fmt: skip
    control = rows[rows["extension"] == "none"].groupby("model")["control_loss"].mean()
    axes.axhline(control.min(), color="grey", linestyle="--", linewidth=1, label="best control (context of L/2 to L)")
    factors = sorted(set(rows["factor"]))
    axes.set_xscale("log", base=2)
    axes.set_xticks(factors, [f"{factor:g}x" for factor in factors])
    axes.set_xlabel(f"evaluation length / training length (L = {rows['seq_len'].iloc[0]} tokens)")
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    try:
        files.write_atomically(
            path, lambda to: figure.savefig(to, format=path.suffix[1:], dpi=150, metadata=_undated(path))
        )
    finally:
        plt.close(figure)


def _undated(path: Path) -> dict[str, None] | None:
    return {"Date": None} if path.suffix == ".svg" else None
