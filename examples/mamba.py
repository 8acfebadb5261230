"""A model of another library in the same table as ours: Mamba, as `transformers` has it. See docs/checkpoints.md.

    python examples/mamba.py
    extrapolate eval-lengths sweeps/quick-start/runs/rope-s0 examples/mamba.py:load

The first command trains a small one on the token store data/stdlib, with the library's own loss.
"""

import os
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, MambaConfig

import extrapolate as xt
from extrapolate.data.store import Store

STORE = os.environ.get("MAMBA_STORE", "data/stdlib")
STEPS = int(os.environ.get("MAMBA_STEPS", "200"))
LAYERS = int(os.environ.get("MAMBA_LAYERS", "4"))
SEQ_LEN = int(os.environ.get("MAMBA_SEQ_LEN", "64"))  # the training length, tokens
WINDOWS = 32  # in a step
FOLDER = Path("mamba")


def load() -> object:
    """What `eval-lengths examples/mamba.py:load` evaluates."""
    return xt.foreign(AutoModelForCausalLM.from_pretrained(FOLDER), "Mamba", seq_len=SEQ_LEN, tokenizer=STORE)


def train() -> None:
    """Trains the model on random windows of the store's training text."""
    torch.manual_seed(0)
    store = Store.open(Path(STORE))
    text = store.split("train")
    tokens = torch.from_numpy(text.slice(0, text.n_tokens).astype("int64"))
    model = AutoModelForCausalLM.from_config(
        MambaConfig(vocab_size=store.vocab_size, hidden_size=128, num_hidden_layers=LAYERS)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(STEPS):
        starts = torch.randint(len(tokens) - SEQ_LEN, (WINDOWS,)).tolist()
        batch = torch.stack([tokens[start : start + SEQ_LEN] for start in starts])
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0 or step + 1 == STEPS:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    model.save_pretrained(FOLDER)


if __name__ == "__main__":
    train()
