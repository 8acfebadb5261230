"""What every registered encoding must do, whatever its formula."""

from pathlib import Path

import pytest
import torch

from extrapolate import specs
from extrapolate.contract.causality import check_causality
from extrapolate.contract.scale import check_scale
from extrapolate.contract.small_model import fresh_model, resolved_factor, tokens
from extrapolate.encodings.base import FAMILIES, Context, Dims, Encoding
from extrapolate.model import attention
from extrapolate.model.config import ModelConfig
from extrapolate.model.hooks import check
from extrapolate.model.model import Model, find, layer_encodings

L = 16
SIZES = ModelConfig(vocab_size=61, width=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff_width=48)


def make(name: str, seq_len: int = L, sizes: ModelConfig = SIZES) -> Model:
    """A model whose encoding's parameters are not where they start: some start where they do nothing."""
    torch.manual_seed(0)
    spec = specs.parse(name)
    model = Model(sizes, spec.name, spec.arguments, seq_len)
    own = {id(p): p for m in model.modules() if isinstance(m, Encoding) for p in m.parameters()}
    with torch.no_grad():
        for parameter in own.values():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize(("factor", "explicit"), [(1, True), (4, False)], ids=["explicit at 1x", "fused at 4x"])
def test_causality_by_gradient(name: str, factor: int, explicit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "EXPLICIT_UP_TO", 10**6 if explicit else 0)
    model = make(name)
    check_causality(model, Path("mine.py"), factor)


def test_every_path_gives_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(name)
    x = tokens(model, resolved_factor(model, 4))
    with torch.no_grad():
        whole = model(x)
        monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 5)
        chunked = model(x)
    explicit = model(x)  # gradients are on, and the window is short
    torch.testing.assert_close(chunked, whole, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(explicit, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seq_len", [8, 64, 512])
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_the_check_of_a_users_file_finds_nothing_wrong(name: str, seq_len: int, kv_heads: int) -> None:
    spec, dims = specs.parse(name), Dims(32, 4, 16, seq_len, layers=4, kv_heads=kv_heads)
    cls = find(spec.name)
    specs.check_signature(cls, Encoding, Path("mine.py"))
    arguments = specs.convert_arguments(cls, spec.arguments, owner=name)
    check(cls, Path("mine.py"), arguments, dims)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_finite_at_16x_forward_and_backward(name: str, precision: str) -> None:
    model = make(name)
    x = tokens(model, resolved_factor(model, 16) + 1)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = model.loss(x[:, :-1][:, : resolved_factor(model, 16)], x[:, 1:][:, : resolved_factor(model, 16)])
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_positions_are_float32_under_autocast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(name)
    seen: list[torch.dtype] = []
    cls = type(model.encoding)
    for hook, place in {"embed": 1, "attention_input": 1, "rotate": 2, "bias": 0}.items():
        original = getattr(cls, hook)

        def spy(self, *arguments, _original=original, _place=place):
            seen.append(arguments[_place].dtype)
            return _original(self, *arguments)

        monkeypatch.setattr(cls, hook, spy)
    with torch.autocast("cpu", torch.bfloat16):
        model(tokens(model, L))
    assert len(seen) >= 4
    assert set(seen) == {torch.float32}


def test_far_positions_stay_apart_under_autocast(name: str) -> None:
    """At 65,534 and 65,535 an encoding must not say the same: bfloat16 would. Keys lie a few tokens before."""
    spec = specs.parse(name)
    far = {"max": 70_001} if spec.name == "random" else {}
    encoding = layer_encodings(spec.name, {**spec.arguments, **far}, Dims(32, 2, 16, seq_len=70_000, layers=2))[0]
    if not encoding.positional:
        pytest.skip("there are no positions to tell apart")
    pos, pos_S = torch.tensor([65_534.0, 65_535.0]), torch.tensor([65_530.0])
    x_BTD = torch.ones(1, 2, 32)
    q_BHTK = torch.ones(1, 2, 2, 16)
    with torch.autocast("cpu", torch.bfloat16):
        embedded, read = encoding.embed(x_BTD, pos), encoding.attention_input(x_BTD, pos)[0]
        state = encoding.prepare(x_BTD)
        rotated, _ = encoding.rotate(q_BHTK, q_BHTK, pos, pos, state)
        bias = encoding.bias(pos, pos_S)
        context = Context(pos, pos_S, slice(0, 2), slice(0, 1), torch.zeros(2, 1, dtype=torch.bool), state)
        scores = encoding.scores(q_BHTK, q_BHTK[:, :, :1], context)
    differs = [
        not torch.equal(embedded[:, 0], embedded[:, 1]),
        not torch.equal(read[:, 0], read[:, 1]),
        not torch.equal(rotated[:, :, 0], rotated[:, :, 1]),
        bias is not None and not torch.equal(bias[:, 0], bias[:, 1]),
        scores is not None and not torch.equal(scores[:, :, 0], scores[:, :, 1]),
    ]
    assert any(differs)


def test_state_dict_round_trip(name: str) -> None:
    model, other = make(name), make(name).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model(tokens(model, L)), other(tokens(model, L)))


def test_a_few_steps_lower_the_loss(name: str) -> None:
    model = make(name).train()
    x = tokens(model, L + 1, rows=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(6):
        loss = model.loss(x[:, :-1], x[:, 1:])
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0] - 0.1


def test_resolved_arguments_rebuild_the_same_encoding(name: str) -> None:
    """At another training length too: what was derived from L is inherited."""
    arguments = make(name).encoding.arguments()
    again = Model(SIZES, specs.parse(name).name, arguments, 2 * L)
    assert again.encoding.arguments() == arguments


def test_order_matters_to_the_last_token(name: str) -> None:
    """Swapping two tokens changes what follows, with one layer, only where the encoding tells places apart."""
    model = make(name, sizes=SIZES.model_copy(update={"layers": 1}))
    with torch.no_grad():  # sharper scores: some encodings change them very little at first
        model.blocks[0].attention.qkv.weight.mul_(10.0)
    x = tokens(model, L, rows=1)
    swapped = x.clone()
    swapped[0, [3, 9]] = x[0, [9, 3]]
    with torch.no_grad():
        same = torch.allclose(model(x)[0, -1], model(swapped)[0, -1], atol=1e-6)
    # With one layer of RNoPE or HyPE, it is the one without an encoding, and of RePo, the one without true positions.
    assert same == (name in ("none", "rnope", "hype", "repo"))


def test_no_square_of_the_scores_exists_when_evaluating(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hooks are asked for one chunk of queries at a time, whatever the length."""
    monkeypatch.setattr(attention, "QUERIES_PER_CHUNK", 8)
    rows: list[int] = []
    for cls in {type(block.encoding) for block in make(name).blocks}:
        bias, scores = cls.bias, cls.scores
        monkeypatch.setattr(cls, "bias", lambda self, t, s, _bias=bias: rows.append(len(t)) or _bias(self, t, s))
        monkeypatch.setattr(
            cls, "scores", lambda self, q, k, c, _scores=scores: rows.append(q.shape[2]) or _scores(self, q, k, c)
        )
    model = make(name)
    with torch.no_grad():
        model(tokens(model, resolved_factor(model, 4)))
    assert bool(rows) == any(encoding.attends() for encoding in model.encodings)
    assert max(rows, default=0) <= 8


def test_what_is_not_position_starts_as_without_an_encoding(name: str) -> None:
    spec = specs.parse(name)
    check_scale(fresh_model(spec.name, spec.arguments, L), fresh_model("none", {}, L), Path(name))


def test_docstring_is_what_a_reader_learns_from(name: str) -> None:
    cls = find(specs.parse(name).name)
    text = cls.__doc__ or ""
    assert cls.source.removeprefix("arXiv ") in text
    assert "Beyond L:" in text
    for argument in specs.parameters(cls):
        assert f"{argument}" in text.partition("Arguments:")[2], f"{argument} is not explained"
    assert cls.display
    assert cls.family in FAMILIES[:-1]
