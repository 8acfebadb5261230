"""Which precision a device computes in, and what is said of it."""

import pytest
import torch

from extrapolate.machine.devices import chosen, precision_of


@pytest.mark.parametrize(
    ("native", "precision", "said"),
    [
        (False, "fp32", "on cuda in fp32, because Tesla T4 only emulates bf16"),
        (False, "bf16", "on cuda in bf16, as requested, although Tesla T4 only emulates bf16"),
        (True, "bf16", "on cuda in bf16, because Tesla T4 multiplies bf16 matrices natively"),
        (True, "fp32", "on cuda in fp32, as requested, although Tesla T4 multiplies bf16 matrices natively"),
    ],
)
def test_what_a_gpu_computes_in_and_why(
    monkeypatch: pytest.MonkeyPatch, native: bool, precision: str, said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    assert precision_of("cuda") == ("bf16" if native else "fp32")
    assert chosen("cuda", precision) == said
