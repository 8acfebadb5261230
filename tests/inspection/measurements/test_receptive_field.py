"""The receptive field of models that read a known number of tokens."""

from dataclasses import replace

import pytest
import torch

from extrapolate.encodings.plan import Plan
from extrapolate.inspection.measurements import receptive_field
from extrapolate.inspection.measurements.base import measurements


def last(found, name: str) -> float:
    return found[name, None, None, None].mean


@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_model_with_a_window_reads_so_many_tokens(build, windows, measure, window, layers) -> None:
    """A layer reads `window` tokens, and each further layer `window - 1` more."""
    model = build("none", layers=layers)
    with torch.no_grad():  # attention moves much, so that its share of the gradient is not lost in the residual's
        for block in model.blocks:
            block.attention.qkv.weight[64:].mul_(50)
            block.attention.out.weight.mul_(50)
    found = measure("receptive-field", windows(model, 4, plan=Plan(window=window)))
    reach = layers * (window - 1) + 1
    assert last(found, "reach") == reach
    assert last(found, "receptive_field") == reach
    assert found["cumulative", None, None, 1].mean < 0.9
    assert found["cumulative", None, None, 16].mean == pytest.approx(1)


def test_a_model_without_attention_reads_one_token(build, windows, measure) -> None:
    model = build("rope")
    with torch.no_grad():
        model.blocks[0].attention.out.weight.zero_()
    found = measure("receptive-field", windows(model, 4))
    assert last(found, "receptive_field") == last(found, "reach") == 1


def test_the_gradient_is_that_of_the_last_target(build, windows, measure) -> None:
    """In a window without repetitions, an input's gradient is that of its row of the embedding."""
    model = build("rope", layers=2)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight.mul_(30)
            block.attention.out.weight.mul_(30)
    tokens_N = torch.randperm(50, generator=torch.Generator().manual_seed(0))[:17]
    torch.nn.functional.cross_entropy(model(tokens_N[None, :-1])[0, -1], tokens_N[-1]).backward()
    size_N = model.embedding.weight.grad[tokens_N[:-1]].norm(dim=-1)
    share_N = (size_N / size_N.sum()).flip(0).cumsum(dim=0)
    found = measure("receptive-field", replace(windows(model), tokens_WN=tokens_N[None]))
    for count in (1, 2, 4, 8):
        assert found["cumulative", None, None, count].mean == pytest.approx(float(share_N[count - 1]), rel=1e-4)
    assert last(found, "receptive_field") == int((share_N < receptive_field.SHARE).sum()) + 1


def test_weights_can_be_trained_afterwards(build, windows, measure) -> None:
    model = build("t5")
    measure("receptive-field", windows(model))
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("encoding", ["rope", "alibi", "t5", "fox"])
def test_memory_is_foreseen_from_shorter_windows(build, windows, encoding) -> None:
    """RoPE keeps what grows with the length; a bias and explicit scores are kept for every pair."""
    inspected = windows(build(encoding, layers=2), 128, count=1)
    real = receptive_field.kept_at(inspected, 2048)
    assert receptive_field.kept(inspected) == pytest.approx(real, rel=0.05)
    growth = real / receptive_field.kept_at(inspected, 1024)
    assert growth == pytest.approx(2, abs=0.05) if encoding == "rope" else growth > 2.5


def test_what_does_not_fit_is_refused(build, windows, monkeypatch) -> None:
    inspected = windows(build("t5"), 128, count=1)
    refusal = measurements["receptive-field"].refusal
    assert refusal(inspected) is None
    monkeypatch.setattr(receptive_field, "memory_limit", lambda device: 1_000_000)
    assert refusal(inspected) == "a gradient through 2048 tokens needs too much memory"


def test_a_model_that_another_library_runs_is_refused_with_the_reason(windows, build) -> None:
    from extrapolate.interop.foreign import ForeignModel

    foreign = ForeignModel(lambda tokens: torch.zeros(*tokens.shape, 50), "Zeros", 16, 50, None, "cpu")
    inspected = replace(windows(build("rope")), model=foreign, setting=None)
    for name in measurements.names():
        refused = measurements[name].refusal(inspected)
        assert (refused is None) == (name in ("removal", "truncation")), name
