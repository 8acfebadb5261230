"""What a step changes: Muon beside torch's, AdamW by hand, and each parameter's share of the learning rate."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.training import optimizer
from extrapolate.training.optimizer import Muon, learning_rate, optimizer_of, orthogonal

SIZES: dict[str, Any] = {
    "vocab_size": 31, "width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "ff_width": 48,
}  # fmt: skip
MATRICES = {"qkv", "out", "gate", "second", "share", "gate_up", "down"}


def model_of(encoding: str = "rope", **sizes: Any) -> Model:
    torch.manual_seed(0)
    return Model(ModelConfig(**SIZES | sizes), encoding, {}, 16)


def settings(**given: Any) -> TrainingConfig:
    return TrainingConfig(seq_len=16, **given)


def groups_in(model: Model, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """Each parameter's group."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(p)]: group for group in optimizer.param_groups for p in group["params"]}


def groups_of(model: Model, **given: Any) -> dict[str, dict[str, Any]]:
    """Each parameter's group, of the optimiser of these settings."""
    return groups_in(model, optimizer_of(model, settings(**given)))


def test_learning_rate_warms_up_and_falls_in_straight_lines() -> None:
    training = settings(tokens=2048 * 100, warmup_ratio=0.2, min_lr_ratio=0.1)
    assert training.steps == 100
    rates = [learning_rate(training, step) for step in range(101)]
    assert rates[0] == pytest.approx(training.lr / 20)
    assert rates[19] == pytest.approx(training.lr)
    assert max(rates) == pytest.approx(training.lr)
    assert rates[-1] == pytest.approx(0.1 * training.lr)
    middle = 20 + (100 - 20) // 2
    assert rates[middle] == pytest.approx(training.lr * 0.55)
    assert (np.diff(rates[20:]) < 0).all()
    assert 0 < learning_rate(settings(), settings().steps - 1) < 0.01 * settings().lr


@pytest.mark.parametrize(
    ("steps", "more", "expected"),
    [
        (1, {"warmup_ratio": 0.0}, [0.5]),
        (2, {"warmup_ratio": 0.0}, [0.5, 0.25]),
        (3, {"warmup_ratio": 0.0, "min_lr_ratio": 0.0}, [0.5, 1 / 3, 1 / 6]),
        (3, {"warmup_ratio": 0.0, "min_lr_ratio": 1.0}, [0.5, 0.5, 0.5]),
        (5, {"warmup_ratio": 0.0, "min_lr_ratio": 0.2}, [0.5 - 0.08 * n for n in range(5)]),
        (4, {"warmup_ratio": 1.0}, [0.125, 0.25, 0.375, 0.5]),
        (4, {"warmup_ratio": 0.5}, [0.25, 0.5, 0.5, 0.25]),
        (1, {"warmup_ratio": 1.0}, [0.5]),
        (7, {"warmup_ratio": 0.5}, [0.125, 0.25, 0.375, 0.5, 0.5, 1 / 3, 1 / 6]),  # 3.5 steps are 4
    ],
)
def test_the_schedule_of_a_few_steps(steps: int, more: dict[str, float], expected: list[float]) -> None:
    training = settings(tokens=16 * steps, batch_tokens=16, lr=0.5, **more)
    assert [learning_rate(training, step) for step in range(steps)] == pytest.approx(expected)


def test_each_optimizer_has_a_learning_rate_of_its_own() -> None:
    assert settings().lr == settings(optimizer="muon").lr == 0.02
    assert settings(optimizer="adamw").lr == 3e-3
    assert settings(optimizer="adamw", lr=0.5).lr == settings(lr=0.5).lr == 0.5


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("encoding", ["rope", "learned", "dape", "fox", "random"])
def test_every_parameter_is_trained_once_and_the_blocks_matrices_alone_decay(encoding: str, optimizer: str) -> None:
    model = model_of(encoding, output_gate=True, differential=True, canon=True)
    groups = groups_of(model, optimizer=optimizer, weight_decay=0.3)
    assert set(groups) == {name for name, _ in model.named_parameters()}
    assert len(groups) == sum(len(group["params"]) for group in optimizer_of(model, settings()).param_groups)
    for name, group in groups.items():
        matrix = name.split(".")[-2] in MATRICES and ".encoding." not in name
        assert group["weight_decay"] == (0.3 if matrix else 0.0)
        assert ("parts" in group) == (matrix and optimizer == "muon")


def test_shares_of_the_learning_rate() -> None:
    model = model_of("learned", qkv_bias=True)
    muon, adamw = groups_of(model), groups_of(model, optimizer="adamw")
    for name in muon:
        table = name in ("embedding.weight", "blocks.0.encoding.table_LD")
        vector = name.endswith(("norm.weight", "bias"))
        assert adamw[name]["rate"] == (10 if table else 1)
        assert muon[name]["rate"] == (5 if table else 64 / 32 if name == "head.weight" else 0.5 if vector else 1)


def test_tied_embeddings_are_trained_once_as_embeddings() -> None:
    groups = groups_of(model_of(tied_embeddings=True))
    assert "head.weight" not in groups
    assert groups["embedding.weight"]["rate"] == 5


@pytest.mark.parametrize("shape", [(32, 32), (48, 32), (32, 48)])
def test_orthogonal_keeps_the_singular_vectors_and_makes_the_values_about_1(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    left, before, right = torch.linalg.svd(x, full_matrices=False)
    values = left.T @ orthogonal(x, torch.float64) @ right.T
    large = before > 0.01 * before.norm()
    assert large.sum() >= 30  # those of a square matrix reach down to 0
    assert values.diagonal()[large].min() > 0.69
    assert values.diagonal().max() < 1.27
    torch.testing.assert_close(values, values.diagonal().diag(), rtol=0, atol=1e-9)
    torch.testing.assert_close(orthogonal(x.float(), torch.float32).double(), left @ values @ right, rtol=0, atol=1e-3)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_orthogonal_in_bf16_survives_a_matrix_of_about_rank_1(noise: float) -> None:
    """Its norm is its largest singular value, which rounding brings above 1: without room there, the steps diverge."""
    torch.manual_seed(0)
    for _ in range(20):
        x = torch.randn(32, 1) @ torch.randn(1, 48) + noise * torch.randn(32, 48)
        largest = torch.linalg.matrix_norm(orthogonal(x, torch.bfloat16).float(), 2)
        assert 0.65 < largest < 1.3


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch 2.8 has none")
@pytest.mark.parametrize("shape", [(32, 32), (96, 32), (32, 48)])
def test_with_its_iteration_a_matrix_that_is_one_part_moves_as_torchs_muon_moves_it(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "COEFFICIENTS", ((3.4445, -4.7750, 2.0315),) * 5)
    torch.manual_seed(0)
    own, peer = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
    ours = Muon([{"params": [own], "parts": (shape[0],), "bf16": True}], lr=0.1, weight_decay=0.2)
    # With "match_rms_adamw" torch's rate has the factor 0.2 max(shape)^0.5.
    scale = math.sqrt(max(shape) / min(shape)) / (0.2 * math.sqrt(max(shape)))
    theirs = torch.optim.Muon([peer], lr=0.1 * scale, weight_decay=0.2 / scale, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        own.grad = torch.randn(shape)
        peer.grad = own.grad.clone()
        ours.step()
        theirs.step()
    assert (own - 1).abs().mean() > 0.01
    torch.testing.assert_close(own, peer, rtol=0, atol=1e-3)


def test_parts_move_as_matrices_of_their_own() -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(rows, 32) for rows in (32, 16, 16)]
    alone = [torch.nn.Parameter(torch.zeros(len(g), 32)) for g in gradients]
    whole = torch.nn.Parameter(torch.zeros(64, 32))
    together: list[Tensor] = [whole, *alone]
    for parameter, gradient in zip(together, [torch.cat(gradients), *gradients], strict=True):
        parameter.grad = gradient
    parts = [(32, 16, 16), *((len(g),) for g in gradients)]
    Muon([{"params": [p], "parts": rows, "bf16": False} for p, rows in zip(together, parts, strict=True)]).step()
    torch.testing.assert_close(whole, torch.cat([p.detach() for p in alone]))


def test_a_move_is_a_share_of_the_start_at_every_width() -> None:
    for width in (64, 256):
        torch.manual_seed(0)
        matrix = torch.nn.Parameter(torch.randn(3 * width, width) / math.sqrt(width))
        before = matrix.detach().clone()
        matrix.grad = torch.randn_like(matrix)
        Muon([{"params": [matrix], "parts": (width,) * 3, "bf16": False}], lr=0.1, weight_decay=0.0).step()
        assert float((matrix.detach() - before).norm() / before.norm()) == pytest.approx(0.09, abs=0.01)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_steps_have_every_setting_of_the_run(config_of, training_of, optimizer: str) -> None:
    """Three steps by hand, in float64, from the gradients that the optimiser was given: clipped, and no others."""
    clip, beta1, beta2, decay = 0.05, 0.6, 0.7, 0.4
    config = config_of(optimizer=optimizer, lr=0.01, clip=clip, beta1=beta1, beta2=beta2, weight_decay=decay)
    training = training_of(config)
    parameters = dict(training.model.named_parameters())
    rates = {name: group["rate"] for name, group in groups_in(training.model, training.optimizer).items()}
    expected = {name: p.detach().double() for name, p in parameters.items()}
    mean, square = ({name: torch.zeros_like(p) for name, p in expected.items()} for _ in range(2))
    gradients: list[dict[str, Tensor]] = []

    def keep(*_: object) -> None:
        found = {name: p.grad.double() for name, p in parameters.items() if p.grad is not None}
        if len(found) == len(parameters):  # Muon's step has AdamW's in it, which the matrices' gradients do not reach
            gradients.append(found)

    training.optimizer.register_step_pre_hook(keep)
    for step in range(3):
        logged = training._step()
        norm = math.sqrt(sum(float(g.pow(2).sum()) for g in gradients[step].values()))
        assert norm == pytest.approx(clip, rel=1e-3)
        assert logged["grad_norm"] > clip
        lr = learning_rate(config.training, step)
        for name, g in gradients[step].items():
            matrix = name.split(".")[-2] in MATRICES
            if matrix:
                expected[name] *= 1 - lr * decay
            if matrix and optimizer == "muon":
                mean[name] = 0.95 * mean[name] + 0.05 * g
                rows = {"qkv": (32, 32, 32), "gate_up": (48, 48)}.get(name.split(".")[-2], (len(g),))
                moves = (0.95 * mean[name] + 0.05 * g).split(rows)
                sizes = [math.sqrt(max(x.shape) / min(x.shape)) for x in moves]
                move = torch.cat([s * orthogonal(x, torch.float64) for s, x in zip(sizes, moves, strict=True)])
                expected[name] -= lr * move
                continue
            mean[name] = beta1 * mean[name] + (1 - beta1) * g
            square[name] = beta2 * square[name] + (1 - beta2) * g**2
            bias1, bias2 = 1 - beta1 ** (step + 1), 1 - beta2 ** (step + 1)
            expected[name] -= lr * rates[name] * (mean[name] / bias1) / ((square[name] / bias2).sqrt() + 1e-8)
    for name, p in parameters.items():
        torch.testing.assert_close(p.detach().double(), expected[name], rtol=1e-4, atol=1e-5)
