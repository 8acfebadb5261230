"""Checkpoints of random models, saved as transformers saves them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from extrapolate.encodings.plan import PLAIN
from extrapolate.extensions import stack as stacks
from extrapolate.interop import huggingface
from extrapolate.model.model import Model
from extrapolate.runs.weights import load_weights

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """A saved model, and its logits as this project and as transformers compute them."""

    folder: Path
    model: torch.nn.Module

    def rewrite(self, **changes: Any) -> None:
        """Changes fields of config.json; a value of ... removes the field."""
        path = self.folder / "config.json"
        config = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))

    def source(self) -> huggingface.Source:
        return huggingface.find(str(self.folder))

    def ours(self, tokens: Tensor, seq_len: int | None = None) -> Tensor:
        """Logits of the checkpoint as this project reads it."""
        source = self.source()
        rotary, sizes = huggingface.rotary_of(source, seq_len), huggingface.sizes_of(source)
        model = Model(sizes, rotary.encoding, rotary.arguments, rotary.seq_len).eval()
        load_weights(model, huggingface.weights_of(source, sizes), str(self.folder))
        plan = PLAIN
        if rotary.extension is not None:
            plan = stacks.parse(rotary.extension).plan(model.encoding, rotary.seq_len, tokens.shape[1])
        with torch.inference_mode():
            return model(tokens, plan)

    def theirs(self, tokens: Tensor) -> Tensor:
        """Logits as transformers reads it, loaded anew because some rotary embeddings remember the longest input."""
        import transformers

        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32).eval()
        with torch.inference_mode():
            return model(input_ids=tokens).logits

    def agree(self, length: int, seq_len: int | None = None) -> None:
        """Compares the logits of a text of `length` tokens."""
        tokens = torch.randint(0, 97, (2, length), generator=torch.Generator().manual_seed(length))
        expected = self.theirs(tokens)
        assert expected.std() > 0.1
        torch.testing.assert_close(self.ours(tokens, seq_len), expected, rtol=0, atol=1e-5)


@pytest.fixture
def saved(tmp_path: Path, bpe: Tokenizer) -> Callable[..., Checkpoint]:
    """Saves a model with random weights, large enough that every part matters."""
    transformers = pytest.importorskip("transformers")

    def save(kind: str = "Llama", *, options: dict[str, Any] | None = None, **changes: Any) -> Checkpoint:
        sizes = {"text_config": SIZES | changes.pop("text_config")} if "text_config" in changes else SIZES
        config = getattr(transformers, f"{kind}Config")(**sizes | changes)
        kind, name = kind.removesuffix("Text"), "ForConditionalGeneration" if "text_config" in sizes else "ForCausalLM"
        model = getattr(transformers, f"{kind}{name}")(config).eval()
        norm = 0.0 if kind.startswith("Gemma") else 1.0  # there, a norm multiplies by one more than its weight
        torch.manual_seed(0)
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.randn_like(weight) * 0.1 + (norm if weight.ndim == 1 else 0.0))
        folder = tmp_path / "checkpoint"
        model.save_pretrained(folder, **options or {})
        bpe.save(str(folder / "tokenizer.json"))
        return Checkpoint(folder, model)

    return save
