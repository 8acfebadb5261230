"""What the fused kernel is given."""

import pytest
import torch
import torch.nn.functional as F

from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model


@pytest.mark.parametrize(("name", "wide"), [("rope", 16), ("pope", 32), ("learned", 16)])
def test_values_are_as_wide_as_keys_and_no_wider(name: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoPE's queries and keys are twice as wide as its values; with another width the kernel takes a slow path."""
    seen = []
    kernel = F.scaled_dot_product_attention

    def spy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: object) -> torch.Tensor:
        seen.append({x.shape[-1] for x in (q, k, v)})
        return kernel(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    sizes = ModelConfig(vocab_size=31, width=32, layers=2, heads=2, kv_heads=1, head_dim=16, ff_width=16)
    with torch.no_grad():
        Model(sizes, name, {}, 16)(torch.zeros(1, 12, dtype=torch.long))
    assert seen == [{wide}] * 2
