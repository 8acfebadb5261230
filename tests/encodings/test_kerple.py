"""KERPLE's kernels: their parameters' ranges, gradients and start."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.data.store import Store
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.encodings.kerple import KERPLE
from extrapolate.model.model import layer_encodings
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.training.job import TrainingJob
from extrapolate.training.loop import train

H, K = 4, 8
DIMS = Dims(width=H * K, heads=H, head_dim=K, seq_len=32, layers=3)


def positions(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def numbers(module: torch.nn.Module) -> dict[str, Any]:
    """Its parameters, as float64."""
    return {name: parameter.detach().double().numpy() for name, parameter in module.named_parameters()}


def bias_of(encoding: Encoding, pos_T: Tensor, pos_S: Tensor) -> Tensor:
    bias = encoding.bias(pos_T, pos_S)
    assert bias is not None
    return bias


def kerple(kernel: str, p: list[float], a: list[float]) -> Encoding:
    encoding = layer_encodings("kerple", {"kernel": kernel}, DIMS)[0]
    assert isinstance(encoding.p_H, Tensor)
    assert isinstance(encoding.a_H, Tensor)
    with torch.no_grad():
        encoding.p_H.copy_(torch.tensor(p))
        encoding.a_H.copy_(torch.tensor(a))
    return encoding


@pytest.mark.parametrize(("kernel", "most"), [("log", 7.5), ("power", 2.0)])
def test_kerple_keeps_its_range(kernel: str, most: float) -> None:
    """The bias is that of values within it, and changes no parameter; `constrain` overwrites what is out of it."""
    encoding = kerple(kernel, p=[-1.0, 0.005, 7.5, 1.25], a=[-3.0, 0.0, 6.5, 0.02])
    bias = bias_of(encoding, positions(9), positions(9))
    assert numbers(encoding)["p_H"] == pytest.approx([-1.0, 0.005, 7.5, 1.25])
    assert numbers(encoding)["a_H"] == pytest.approx([-3.0, 0.0, 6.5, 0.02])
    with torch.no_grad():
        encoding.constrain()
    own = numbers(encoding)
    assert own["p_H"] == pytest.approx([0.01, 0.01, most, 1.25])
    assert own["a_H"] == pytest.approx([0.01, 0.01, 6.5, 0.02])
    assert torch.equal(bias, bias_of(encoding, positions(9), positions(9)))
    distance = 5.0
    for h in range(H):
        p, a = own["p_H"][h], own["a_H"][h]
        expected = -p * math.log(1 + a * distance) if kernel == "log" else -a * distance**p
        assert bias[h, 8, 3].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_gradients_by_hand(kernel: str) -> None:
    """Also where a parameter was just overwritten, and so is at its bound."""
    encoding = kerple(kernel, p=[-1.0, 0.5, 1.0, 1.75], a=[0.3, -0.2, 2.0, 0.7])
    with torch.no_grad():
        encoding.constrain()
    weight = np.random.default_rng(0).normal(size=(H, 9, 9)) * np.tri(9)
    (bias_of(encoding, positions(9), positions(9)) * torch.tensor(weight, dtype=torch.float32)).sum().backward()
    own = numbers(encoding)
    for h in range(H):
        p, a, by_p, by_a = own["p_H"][h], own["a_H"][h], 0.0, 0.0
        for i in range(9):
            for r in range(1, i + 1):
                w = weight[h, i, i - r]
                by_p += w * (-math.log(1 + a * r) if kernel == "log" else -a * r**p * math.log(r))
                by_a += w * (-p * r / (1 + a * r) if kernel == "log" else -(r**p))
        assert encoding.p_H.grad[h].item() == pytest.approx(by_p, rel=1e-3, abs=1e-5)
        assert encoding.a_H.grad[h].item() == pytest.approx(by_a, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_starts_uniformly(kernel: str) -> None:
    encoding = layer_encodings("kerple", {"kernel": kernel}, Dims(width=4000, heads=4000, head_dim=1, seq_len=8))[0]
    for values, most in ((encoding.p_H, 2.0), (encoding.a_H, 1.0)):
        assert 0 <= values.min().item() < 0.01 * most
        assert 0.99 * most < values.max().item() <= most
        assert values.mean().item() == pytest.approx(most / 2, rel=0.05)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_learns_as_the_authors_code_does(
    kernel: str, word_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That overwrites in the forward pass. Bit for bit, though steps are so long that parameters leave their range."""
    constrain, bias = KERPLE.constrain, KERPLE.bias
    left: list[bool] = []

    def constrain_seen(self: KERPLE) -> None:
        before = numbers(self)
        constrain(self)
        left.append(any((before[name] != values).any() for name, values in numbers(self).items()))

    def overwriting(self: KERPLE, pos_T: Tensor, pos_S: Tensor) -> Tensor:
        self.p_H.data.clamp_(0.01, None if kernel == "log" else 2.0)
        self.a_H.data.clamp_(0.01)
        return bias(self, pos_T, pos_S)

    training = {"seq_len": 16, "tokens": 256 * 6, "batch_tokens": 256, "lr": 0.3, "precision": "fp32"}
    sizes = {"width": 32, "layers": 2, "heads": 2, "head_dim": 16, "ff_width": 48}
    config, _ = resolve(TrainingRequest(pe=f"kerple:kernel={kernel}", model=sizes, training=training), word_store)
    monkeypatch.setattr(KERPLE, "constrain", constrain_seen)
    ours = train(TrainingJob(config, word_store, tmp_path / "ours"))
    assert any(left)
    monkeypatch.setattr(KERPLE, "constrain", Encoding.constrain)
    monkeypatch.setattr(KERPLE, "bias", overwriting)
    theirs = train(TrainingJob(config, word_store, tmp_path / "theirs"))
    assert ours.checkpoints("last")[0].sha256 == theirs.checkpoints("last")[0].sha256


@pytest.mark.parametrize("spec", ["dape:base=kerple", "random:base=(dape:base=kerple)"])
def test_a_wrapper_keeps_the_range_of_its_base(spec: str) -> None:
    name, _, base = spec.partition(":base=")
    layers = layer_encodings(name, {"base": base.strip("()")}, DIMS)
    with torch.no_grad():
        for parameter, values in layers[0].named_parameters():
            if parameter.endswith("_H"):
                values.fill_(-1.0)
        layers[-1].constrain()
    own = {name: values for name, values in numbers(layers[0]).items() if name.endswith("_H")}
    assert len(own) == 2
    for values in own.values():
        assert values == pytest.approx([0.01] * H)
