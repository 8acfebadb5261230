"""Benchmarks check a user's encoding as thoroughly as evaluations by length do."""

from pathlib import Path

import pytest

import extrapolate as xt

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install 'extrapolate[lm-eval]'")
RunLM = pytest.importorskip("extrapolate.interop.lm_eval").RunLM

HEAD = """
import torch
from extrapolate.encodings.base import Encoding

class Mine(Encoding):
    display = "Mine"
"""
BODIES = {
    "embed lets token .* at 512 tokens": """
    def embed(self, x, p):
        if x.shape[1] <= 32:
            return x
        ahead = x[:, 16:32].mean(dim=1, keepdim=True).expand(-1, 16, -1)
        return torch.cat([x[:, :16], ahead, x[:, 32:]], dim=1)
""",
    "the encoding gives other numbers after other tokens, .* at 512 tokens": """
    kept = {}
    def embed(self, x, p):
        if x.shape[1] <= 32:
            return x
        return x - self.kept.setdefault(x.shape[1], x.mean(dim=0, keepdim=True))
""",
}


@pytest.mark.parametrize("wrong", BODIES)
def test_what_sees_later_tokens_beyond_the_training_length_is_not_scored(
    wrong: str, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(HEAD + BODIES[wrong])
    run = xt.train(
        f"{tmp_path / 'mine.py'}:Mine", data=store, out=tmp_path / "run", seq_len=16, tokens=512, batch_tokens=256,
        width=32, layers=1, heads=2, precision="fp32",
    )  # fmt: skip
    with pytest.raises(xt.UserError, match=wrong):
        RunLM(run, length=512)
