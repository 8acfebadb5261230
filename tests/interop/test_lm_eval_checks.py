"""Benchmarks check a user's encoding as thoroughly as evaluations by length do, and know what was asked and how."""

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


def test_a_task_that_scores_otherwise_is_another_one() -> None:
    """Its name, version and questions may be the same."""
    benchmarks = pytest.importorskip("extrapolate.interop.benchmarks")
    samples = [{"doc_id": 0, "doc_hash": "a", "arguments": [], "target_hash": "b"}]
    filters = [{"name": "strict", "filter": [{"function": "regex", "fallback": "none"}]}]
    configs = [
        {"filter_list": filters},
        {"filter_list": [{"name": "strict", "filter": [{"function": "regex", "fallback": "import"}]}]},
        {"filter_list": filters, "process_results": "def process_results(doc, found): return {'acc': 1.0}"},
    ]
    found = [benchmarks._hash_of(samples, 1.0, config | {"description": str(i)}) for i, config in enumerate(configs)]
    assert len(set(found)) == len(configs)
    assert benchmarks._hash_of(samples, 1.0, {"filter_list": filters}) == found[0]
