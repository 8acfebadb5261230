"""What is wrong in a user's own encoding is refused when it is loaded, in words; what is right passes."""

from pathlib import Path

import pytest
import torch

from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model

DISTANCE = "(pos_T[:, None] - pos_S[None, :]).clamp(min=0)"


RIGHT = {
    "nothing": "pass",
    "one bias for all heads": f"def bias(self, pos_T, pos_S): return -{DISTANCE}[None]",
    "a bias that hides, and is nan after the query": """
        def bias(self, pos_T, pos_S):
            distance = pos_T[:, None] - pos_S
            return (-distance.sqrt()).masked_fill(distance > 5, -math.inf).expand(self.dims.heads, -1, -1)
        """,
    "keys that take from the key before": """
        def rotate(self, q, k, pos_T, pos_S, state):
            return q, k + 0.5 * nn.functional.pad(k, (0, 0, 1, 0))[:, :, :-1]
        """,
    "queries turned by the content before them": """
        def rotate(self, q, k, pos_T, pos_S, state):
            angle = q[..., :1].cumsum(dim=2)
            return torch.cat([q[..., :4] * angle.cos(), q[..., 4:]], dim=-1), k
        """,
    "a convolution over the embedding": """
        def embed(self, x_BTD, pos_T):
            return x_BTD + nn.functional.pad(x_BTD, (0, 0, 1, 0))[:, :-1]
        """,
    "a count of tokens where positions may not change": """
        accepts = frozenset({LOGITS})
        def embed(self, x_BTD, pos_T):
            return x_BTD + torch.arange(x_BTD.shape[1])[:, None]
        """,
    "a table that ends": """
        accepts = frozenset({POSITIONS, LOGITS})
        def __init__(self, dims):
            super().__init__(dims)
            self.max_length = 10
            self.table = nn.Parameter(torch.zeros(10, dims.width))
        def embed(self, x_BTD, pos_T):
            return x_BTD + self.table[pos_T.long()]
        """,
    "scores from gates": """
        def prepare(self, x_BTD):
            return x_BTD[..., :4].cumsum(dim=1).transpose(1, 2)
        def scores(self, q, k, context):
            gate = context.state
            return scaled_product(q, k) + gate[:, :, context.queries, None] - gate[:, :, None, context.keys]
        """,
    "an argument of every kind": """
        def __init__(self, dims, *, a: int | None = None, b: float = 2, c: bool = True, d: str = "x", e: float = 1e-3):
            super().__init__(dims)
            self.a, self.b, self.c, self.d, self.e = dims.width // 2 if a is None else a, b, c, d, e
        """,
    "helpers of its own": """
        def rotate_half(self, x): return x
        def table(self, pos_T): return pos_T
        def _rotat(self): pass
        def rotate(self, q, k, pos_T, pos_S, state): return q, k
        def rotated(self, x): return x
        """,
}


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_is_right_passes(load, body: str) -> None:
    assert len(load(body)) == 2


class TestRotate:
    """Queries and keys are turned by their own positions, which differ in some extensions."""

    @pytest.mark.parametrize("times", ["pos_T", "torch.arange(float(q.shape[2]))"])
    @pytest.mark.parametrize("keys", ["pos_S", "torch.arange(float(k.shape[2]))"])
    def test_by_their_own_positions(self, load, refused, times: str, keys: str) -> None:
        body = f"""
        def rotate(self, q, k, pos_T, pos_S, state):
            def turned(x, pos):
                angle = torch.outer(pos, geometric(10.0, 8, x.device))
                a, b = x.chunk(2, dim=-1)
                return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1)
            return turned(q, {times}), turned(k, {keys})
        """
        if (times, keys) == ("pos_T", "pos_S"):
            load(body)
        else:
            refused(body, "mine.py: rotate turns tokens otherwise if those before", "positions from pos_T and pos_S")

    def test_one_table_for_both_is_refused(self, refused) -> None:
        body = """
        def rotate(self, q, k, pos_T, pos_S, state):
            cos = torch.outer(pos_T, torch.ones(8)).cos()
            return q * cos, k * cos
        """
        refused(body, "mine.py: rotate failed: RuntimeError: ", "in line ")


class TestAnswers:
    """Form, type and numbers of what a hook returns."""

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("def positions(self, index_T): return index_T[:-1]", "positions returned [63]; expected [T=64]"),
            ("def positions(self, index_T): return index_T.long()", "positions returned int64; expected float32"),
            ("def positions(self, index_T): return index_T / 0", "positions returned nan at t=0; expected finite"),
            ("def positions(self, index_T): return index_T.long() if self.training else index_T",
             "positions returned int64; expected float32"),
            ("def embed(self, x, pos_T): x + 1", "embed returned None; expected a tensor [B=2, T=64, D=32]"),
            ("def embed(self, x, pos_T): return x.sum(-1)", "embed returned [2, 64]; expected [B=2, T=64, D=32]"),
            ("def embed(self, x, pos_T): return x.double()", "embed returned float64; expected float32"),
            ("def embed(self, x, pos_T): return x / 0 * 0", "embed returned nan at b=0, t=0, d=0"),
            ("def attention_input(self, x, pos_T): return x",
             "attention_input returned a tensor [2, 64, 32]; expected a tuple of 2: [B=2, T=64, D=32] and [B"),
            ("def attention_input(self, x, pos_T): return x, x, x", "attention_input returned a tuple of 3"),
            ("def attention_input(self, x, pos_T): return x, None",
             "attention_input returned None; expected a tensor [B=2, T=64, D=32]"),
            ("def rotate(self, q, k, pos_T, pos_S, state): return q",
             "rotate returned a tensor [2, 4, 64, 8]; expected a tuple of 2: [B=2, H=4, T=64, K=8] and [B=2"),
            ("def rotate(self, q, k, pos_T, pos_S, state): return q[:, :2], k",
             "rotate returned [2, 2, 64, 8]; expected [B=2, H=4, T=64, K=8]"),
            ("def rotate(self, q, k, pos_T, pos_S, state): return torch.cat([q, q], -1), k",
             "rotate returned [2, 4, 64, 16]; expected [B=2, H=4, T=64, K=8]"),
            ("def rotate(self, q, k, *more): return q.half(), k", "rotate returned float16; expected float32"),
            ("def bias(self, pos_T, pos_S): return torch.zeros(2, len(pos_T), len(pos_S))",
             "bias returned [2, 64, 64]; expected [H=4, T=64, S=64]"),
            ("def bias(self, pos_T, pos_S): return torch.zeros(len(pos_T), len(pos_S))",
             "bias returned [64, 64]; expected [H=4, T=64, S=64]"),
            ("def bias(self, pos_T, pos_S): return 0.0", "bias returned 0.0; expected a tensor [H=4, T=64, S=64]"),
            (f"def bias(self, pos_T, pos_S): return ({DISTANCE} > 3)[None]", "bias returned bool; expected float32"),
            (f"def bias(self, pos_T, pos_S): return {DISTANCE}.double()[None]", "bias returned float64; expected"),
            (f"def bias(self, pos_T, pos_S): return 1 / {DISTANCE}[None]",
             "bias returned inf at h=0, t=0, s=0; expected finite numbers"),
            ("def bias(self, pos_T, pos_S): return (pos_T[:, None] * pos_S * -math.inf)[None]", "bias returned nan at"),
            (f"def bias(self, pos_T, pos_S): return -{DISTANCE}[None] - math.inf", "bias hides every key of a query"),
            ("def scores(self, q, k, context): return (q @ k.mT)[0]",
             "scores returned [4, 64, 64]; expected [B=2, H=4, T=64, S=64]"),
            ("def scores(self, q, k, context): return (q @ k.mT).long()", "scores returned int64; expected float32"),
            ("def scores(self, q, k, context): return (context.pos_T[:, None] - context.pos_S).sqrt() + q @ k.mT",
             "scores returned nan at b=0, h=0, t=0, s=1"),
            ("def weights(self, s, context): return s.softmax(-1)[:, :1]",
             "weights returned [2, 1, 64, 64]; expected [B=2, H=4, T=64, S=64]"),
            ("def weights(self, s, context): return s", "weights returned -inf at b=0, h=0, t=0, s=1; expected finite"),
            ("def mix(self, q, k, v, state): return v[:, :, :1]",
             "mix returned [2, 4, 1, 8]; expected [B=2, H=4, T=64, K=8]"),
            ("def mix(self, q, k, v, state): return v.double()", "mix returned float64; expected float32"),
            ("def extended(self, plan): pass", "extended returned None; expected an encoding"),
        ],
    )  # fmt: skip
    def test_a_wrong_one_is_refused_with_what_was_expected(self, refused, body: str, message: str) -> None:
        refused(body, f"mine.py: {message}")

    @pytest.mark.parametrize(
        ("hook", "value"),
        [("weights", "torch.ones(2)"), ("mix", "nn.Linear(2, 2)"), ("bias", "0.5"), ("share", "0.5"), ("label", "'A'")],
    )
    def test_an_attribute_may_not_have_the_name_of_a_method(self, refused, hook: str, value: str) -> None:
        body = f"def __init__(self, dims):\n    super().__init__(dims)\n    self.{hook} = {value}"
        refused(body, f"mine.py: self.{hook} has the name of a method of Encoding: keep it under another name")

    @pytest.mark.parametrize("name", ["share", "extended", "has_rotation", "float"])
    def test_nor_may_an_argument(self, refused, name: str) -> None:
        """The base class would call a number, and nobody would know where it is from."""
        body = (
            f"def __init__(self, dims, *, {name}: float = 0.5):\n    super().__init__(dims)\n    self.{name} = {name}"
        )
        owner = "Module" if name == "float" else "Encoding"
        refused(body, f"mine.py: {name} is a method of {owner}: give the argument another name")

    @pytest.mark.parametrize(
        ("hook", "arguments"),
        [
            ("positions", "index_T"),
            ("embed", "x, pos_T"),
            ("attention_input", "x, pos_T"),
            ("prepare", "x"),
            ("rotate", "q, k, pos_T, pos_S, state"),
            ("bias", "pos_T, pos_S"),
            ("scores", "q, k, context"),
            ("weights", "scores, context"),
            ("mix", "q, k, v, state"),
            ("extended", "plan"),
        ],
    )
    def test_a_hook_that_fails_is_named(self, refused, tmp_path: Path, hook: str, arguments: str) -> None:
        body = f"def {hook}(self, {arguments}):\n    return [][3]"
        message = refused(body, f"mine.py: {hook} failed: IndexError: list index out of range, in line ")
        line = 1 + (tmp_path / "mine.py").read_text().splitlines().index("        return [][3]")
        assert message.endswith(f"in line {line}")
        refused(body.replace("return [][3]", "raise SystemExit"), f"mine.py: {hook} failed: SystemExit, in line {line}")
        refused(body.replace(arguments, "one, two, three, four, five, six"), f"mine.py: {hook} failed: TypeError: ")

    def test_heads_are_not_always_as_many_for_keys(self, load, refused, tmp_path: Path) -> None:
        body = """
        def __init__(self, dims):
            super().__init__(dims)
            self.scale = nn.Parameter(torch.ones(dims.heads, 1, 1))
        def rotate(self, q, k, pos_T, pos_S, state):
            return q, k * self.scale
        """
        load(body)
        refused(body, "rotate returned [2, 4, 64, 8]; expected [B=2, G=1, S=64, K=8]", kv_heads=1)
        sizes = {"vocab_size": 50, "width": 32, "layers": 1, "heads": 4, "head_dim": 8}
        Model(ModelConfig(**sizes, kv_heads=4), f"{tmp_path / 'mine.py'}:Mine", {}, 64)
        (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text().replace("dims.heads", "dims.kv_heads"))
        for kv_heads in (4, 2, 1):
            model = Model(ModelConfig(**sizes, kv_heads=kv_heads), f"{tmp_path / 'mine.py'}:Mine", {}, 64)
            assert len(model.encoding.scale) == kv_heads
        load(body)
        with pytest.raises(ValueError, match=r"mine\.py: rotate failed: RuntimeError"):
            Model(ModelConfig(**sizes, kv_heads=2), f"{tmp_path / 'mine.py'}:Mine", {}, 64)


def test_random_numbers_are_those_of_an_encoding_that_is_not_checked(load) -> None:
    body = """
    def __init__(self, dims):
        super().__init__(dims)
        self.table = nn.Parameter(torch.randn(3))
        self.asked = []
    def bias(self, pos_T, pos_S):
        self.asked.append(len(pos_T))
        return torch.rand(1, 1, 1).expand(1, len(pos_T), len(pos_S)) * 0
    """
    torch.manual_seed(3)
    encoding = load(body)[0]
    torch.manual_seed(3)
    assert torch.equal(encoding.table, torch.randn(3))
    assert encoding.asked == [], "a hook may remember what it was asked: the check has instances of its own"
