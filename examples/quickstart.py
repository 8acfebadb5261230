"""A first notebook: tokenise, train two small models, evaluate them, compare them, plot.

Open it in an editor that knows cells (`# %%`), or run it whole: `python examples/quickstart.py`.
It takes less than two minutes on a laptop, and writes into the folder `quickstart`.
"""

# %% The settings. The environment can change them: a smaller QUICKSTART_TOKENS trains for less time.
import os
from pathlib import Path

import matplotlib.pyplot as plt

import extrapolate as xt

FOLDER = Path("quickstart")
TEXT = os.environ.get("QUICKSTART_TEXT", "stdlib")  # or your own files: a folder, a glob
TOKENS = int(os.environ.get("QUICKSTART_TOKENS", "300_000"))  # training tokens of each model
TARGETS = int(os.environ.get("QUICKSTART_TARGETS", "16_384"))  # scored tokens, at every length
FACTORS = (1, 2, 4, 8)  # evaluation lengths, as multiples of the training length

# %% The text becomes tokens, four times as many as a model trains on. Long documents are held out for testing.
store = xt.tokenize(
    TEXT,
    FOLDER / "data",
    vocab_size=512,
    max_tokens=4 * TOKENS,
    min_heldout_tokens=1025,
    progress=xt.Terminal(),
)

# %% Two models, which differ in their positional encoding alone. A finished run is not trained again.
runs = [
    xt.train(
        name, seq_len=64, tokens=TOKENS, data=store, out=FOLDER / "ckpt" / name, resume=True, progress=xt.Terminal()
    )
    for name in ("rope", "alibi")
]

# %% Their losses, in nats per token, on held-out text. `windows` scores the same tokens at every length.
losses = xt.evaluate(runs, factors=FACTORS, protocols=["windows"], max_targets=TARGETS, progress=xt.Terminal())
table = losses.pivot(index="model", columns="factor", values="loss")
print(table.round(3))

# %% Is the difference between them more than chance?
compared = xt.compare(runs)
pairs = compared[compared["other"].isin(table.index)]
print(pairs[["model", "other", "factor", "difference", "low", "high", "verdict"]].round(3).to_string(index=False))

# %% A plot of loss against length
axes = table.T.plot(marker="o", logx=True)
axes.set_xlabel("evaluation length / training length")
axes.set_ylabel("loss, nats per token")
axes.set_xticks(FACTORS, [f"{factor}x" for factor in FACTORS])
axes.minorticks_off()
plt.savefig(FOLDER / "loss.png")
print(f"wrote {FOLDER / 'loss.png'}")

# %% The whole report: tables, plots and a page
written = xt.report(runs, FOLDER / "report")
print(f"wrote {FOLDER / 'report'}: {', '.join(written.files)}")
