"""Plots, by matplotlib, to files."""

from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import files
from extrapolate.report.positions import Failure


def loss_against_length(rows: pd.DataFrame, order: list[str], title: str, path: Path) -> None:
    """Draws the mean loss of each model against the evaluation length, and the best of the controls as a line.

    `rows` are one protocol's, on one set of targets; the file's suffix decides its format.
    """
    figure, axes = _figure(1)
    runs = list(dict.fromkeys(rows.set_index("model").loc[order, "run"]))
    for model in order:
        mine = rows[rows["model"] == model].groupby("factor")["loss"].mean()
        run = rows.loc[rows["model"] == model, "run"].iloc[0]
        extended = rows.loc[rows["model"] == model, "extension"].iloc[0] != "none"
        axes[0].plot(
            mine.index, mine, label=model, color=f"C{runs.index(run) % 10}",
            marker="s" if extended else "o", linestyle=":" if extended else "-",
        )  # fmt: skip
    control = rows[rows["extension"] == "none"].groupby("model")["control_loss"].mean()
    axes[0].axhline(
        control.min(), color="grey", linestyle="--", linewidth=1, label="best control (context of L/2 to L)"
    )
    factors = sorted(set(rows["factor"]))
    axes[0].set_xscale("log", base=2)
    axes[0].set_xticks(factors, [f"{factor:g}x" for factor in factors])
    axes[0].set_xlabel(f"evaluation length / training length (L = {rows['seq_len'].iloc[0]} tokens)")
    axes[0].set_ylabel("loss (nats per token)")
    axes[0].set_title(title)
    axes[0].legend(fontsize="small")
    _save(figure, path)


def loss_by_position(curves: pd.DataFrame, order: list[str], seq_len: int, path: Path) -> None:
    """Draws the loss against the position in the window, a panel for every factor, and the best control's."""
    factors = sorted(set(curves["factor"]))
    figure, axes = _figure(len(factors))
    for panel, factor in zip(axes, factors, strict=True):
        here = curves[curves["factor"] == factor]
        for i, model in enumerate(order):
            mine = here[here["model"] == model]
            panel.plot((mine["position"] + seq_len / 4) / seq_len, mine["loss"], color=f"C{i % 10}", label=model)
        control = here.groupby("position")["control_loss"].min()
        panel.plot(
            (control.index + seq_len / 4) / seq_len, control, color="grey", linestyle="--", linewidth=1,
            label="best control",
        )  # fmt: skip
        panel.set_title(f"windows of {factor:g}x")
        panel.set_xlabel("position in the window / L")
    axes[0].set_ylabel("loss (nats per token)")
    axes[0].legend(fontsize="small")
    _save(figure, path)


def difference_by_position(
    curves: pd.DataFrame, found: list[Failure], order: list[str], seq_len: int, path: Path
) -> None:
    """Draws the difference to the control beyond L, in the longest windows, with its band and the failure lengths."""
    figure, axes = _figure(1)
    longest = curves[(curves["factor"] == curves["factor"].max()) & (curves["position"] >= seq_len)]
    for i, model in enumerate(order):
        mine = longest[longest["model"] == model]
        x = (mine["position"] + seq_len / 4) / seq_len
        axes[0].plot(x, mine["difference"], color=f"C{i % 10}", label=model)
        axes[0].fill_between(x, mine["low"].astype(float), mine["high"].astype(float), color=f"C{i % 10}", alpha=0.15)
        for one in found:
            if one.model == model and one.factor == curves["factor"].max() and one.fails_from is not None:
                at = mine.loc[mine["position"] == one.fails_from, "difference"]
                axes[0].plot((one.fails_from + seq_len / 4) / seq_len, at, marker="v", color=f"C{i % 10}", markersize=9)
    axes[0].axhline(0, color="grey", linewidth=1)
    axes[0].set_xlabel(f"position in windows of {curves['factor'].max():g}x / L (L = {seq_len} tokens)")
    axes[0].set_ylabel("loss minus the control's (nats per token)")
    axes[0].set_title("Beyond L, with 95 % bands; triangles: failure lengths")
    axes[0].legend(fontsize="small")
    _save(figure, path)


def _figure(panels: int) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "extrapolate"  # the same rows give the same file
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, panels, figsize=(7 if panels == 1 else 3.2 * panels, 4.2), layout="constrained", squeeze=False, sharey=True
    )
    for panel in axes[0]:
        panel.grid(alpha=0.3)
    return figure, axes[0]


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    try:
        files.write_atomically(
            path, lambda to: figure.savefig(to, format=path.suffix[1:], dpi=150, metadata=_undated(path))
        )
    finally:
        plt.close(figure)


def _undated(path: Path) -> dict[str, None] | None:
    return {"Date": None} if path.suffix == ".svg" else None
