"""Sizes and budgets by name."""

from typing import Any

from extrapolate.errors import UserError

# Sizes are those of the ExPE paper (arXiv 2509.19569). It does not give the small models' learning rates and batch;
# these are ours. `vocab_size` is the paper's, for parameter counts; a run takes that of its store.
_EXPE_LARGE = {"tokens": 10_000_000_000, "batch_tokens": 524_288, "precision": "bf16", "optimizer": "adamw"}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {"model": {"vocab_size": 2048}, "training": {}},
    "expe-35m": {
        "model": dict(
            vocab_size=32_000, width=384, layers=6, heads=12, kv_heads=12, head_dim=32, ff_width=1024,
            tied_embeddings=False, dropout=0.1,
        ),
        "training": dict(seq_len=512, tokens=700_000_000, batch_tokens=32_768, lr=1e-3, optimizer="adamw"),
    },
    "expe-135m": {
        "model": dict(
            vocab_size=32_768, width=768, layers=12, heads=12, kv_heads=12, head_dim=64, ff_width=2048,
            tied_embeddings=False,
        ),
        "training": dict(seq_len=512, lr=6e-4, **_EXPE_LARGE),
    },
    "expe-342m": {
        "model": dict(
            vocab_size=32_768, width=1024, layers=24, heads=16, kv_heads=16, head_dim=64, ff_width=2816,
            tied_embeddings=True,
        ),
        "training": dict(seq_len=512, lr=3e-4, **_EXPE_LARGE),
    },
    # For comparisons by depth, as in course projects with GPT-2; blocks as in Llama, and a width of our choice.
    "gpt-256": {
        "model": dict(
            vocab_size=32_000, width=512, layers=4, heads=8, kv_heads=8, head_dim=64, ff_width=1376,
            tied_embeddings=True,
        ),
        "training": dict(seq_len=256, tokens=100_000_000, batch_tokens=16_384, lr=1e-3, optimizer="adamw"),
    },
}  # fmt: skip


def preset(name: str) -> dict[str, dict[str, Any]]:
    """The preset's `model` and `training` values. Raises UserError if there is none of that name."""
    if name not in PRESETS:
        from extrapolate.specs import did_you_mean  # here, since --help lists presets and should not wait for it

        raise UserError(f"unknown preset '{name}'; {did_you_mean(name, PRESETS)}")
    return {section: dict(values) for section, values in PRESETS[name].items()}
