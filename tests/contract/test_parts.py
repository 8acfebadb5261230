"""`extrapolate check` finds faults before training, and names the hook."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest

from extrapolate.contract.parts import Part, of_encoding

EXAMPLES = Path(__file__).parents[2] / "examples"
DISTANCE = "(pos_T[:, None] - pos_S[None, :]).clamp(min=0)"
HEAD = """
import torch
from torch import nn
from extrapolate.encodings.base import FREQUENCIES, LOGITS, RELATIVE, Encoding, Spectrum, scaled_product

class Mine(Encoding):
    display = "Mine"
"""
ROTARY = """
        accepts = RELATIVE | {FREQUENCIES}
        frequency_scale = ()
        def spectrum(self): return Spectrum(10.0, 8)
        def extended(self, plan): return super().extended(plan).copy_with(frequency_scale=plan.frequency_scale)
        def rotate(self, q, k, pos_T, pos_S, state):
            frequencies = 10.0 ** (-torch.arange(8) / 8)
            if self.frequency_scale:
                frequencies = frequencies * torch.tensor(self.frequency_scale)
            def turned(x, pos):
                angle = torch.outer(pos, frequencies)
                a, b = x.chunk(2, dim=-1)
                return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1).to(x)
            return turned(q, pos_T), turned(k, pos_S)
"""
Checked = Callable[[str], dict[str, Part]]


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    """Checks the class Mine of mine.py with a given body at L = 64; returns the parts by name."""

    def call(body: str) -> dict[str, Part]:
        return {part.name: part for part in of_encoding(written(tmp_path, body), {}, 64)}

    return call


def written(folder: Path, body: str) -> str:
    """The spec of a class with this body."""
    (folder / "mine.py").write_text(HEAD + indent(dedent(body), "    "))
    return f"{folder / 'mine.py'}:Mine"


@pytest.mark.parametrize(
    "name",
    [
        "rope",
        "learned",
        "fox",
        f"{EXAMPLES / 'my_encoding.py'}:LogBias",
        f"{EXAMPLES / 'my_rotary.py'}:PhaseRoPE",
        f"{EXAMPLES / 'my_gate.py'}:Forgetful",
        f"{EXAMPLES / 'my_turn.py'}:Turning",
        f"{EXAMPLES / 'my_weights.py'}:Sigmoid",
        f"{EXAMPLES / 'my_state.py'}:Fading",
        f"{EXAMPLES / 'my_schedule.py'}:Rising",
    ],
)
def test_what_is_right_passes_every_part(name: str) -> None:
    parts = list(of_encoding(name, {}, 32))
    assert [part.wrong for part in parts] == [""] * 10


def test_a_hook_that_is_wrong_by_itself_ends_the_check(checked: Checked) -> None:
    (part,) = checked("def bias(self, pos_T, pos_S): return torch.zeros(9, 9)").values()
    assert part.name == "hooks, one by one"
    assert "bias returned [9, 9]" in part.wrong


WRONG = {
    "embed sees later tokens": (
        "def embed(self, x, pos_T): return x - x.mean(dim=1, keepdim=True)",
        "causality, 1x L", "mine.py: embed lets token ",
    ),
    "attention_input sees later tokens, in long windows": (
        "def attention_input(self, x, pos_T): return (x + (x.shape[1] > 64) * x.flip(1), x)",
        "causality, 4x L", "mine.py: attention_input lets token ",
    ),
    "keys see later keys": (
        "def rotate(self, q, k, pos_T, pos_S, state): return q, k * k.mean(dim=2, keepdim=True)",
        "causality, 1x L", "mine.py: rotate lets token ",
    ),
    "gates see later tokens": (
        """
        def prepare(self, x): return x.mean(dim=1)[:, None, None, :1]
        def scores(self, q, k, context): return scaled_product(q, k) * context.state
        """,
        "causality, 1x L", "mine.py: scores, or prepare, lets token ",
    ),
    "the key before is hidden": (
        f"def bias(self, pos_T, pos_S): return torch.where({DISTANCE} == 1, -torch.inf, 0.0)[None]",
        "causality, 1x L", "mine.py: bias keeps token 32 from seeing the token before it",
    ),
    "all but the last keys are hidden": (
        f"def bias(self, pos_T, pos_S): return torch.where({DISTANCE} > 3, -torch.inf, 0.0)[None]",
        "causality, 1x L", "mine.py: bias keeps token 32 from seeing any token that is 32 tokens back or more",
    ),
    "tokens of the window counted in embed": (
        "def embed(self, x, pos_T): return x + torch.arange(x.shape[1])[:, None]",
        "a cache of earlier tokens", "mine.py: embed gives a token other numbers when those before it are in a cache",
    ),
    "a bias counted from the last key": (
        """
        def bias(self, pos_T, pos_S):
            index = torch.arange(float(len(pos_S)))
            return -(index[-len(pos_T):, None] - index).clamp(min=0)[None]
        """,
        "what extensions change", "extensions that change positions would change nothing: take positions from pos_T",
    ),
    "a table that is kept by length": (
        """
        tables = {}
        def embed(self, x, pos_T): return x + self.tables.setdefault(len(pos_T), pos_T.sin()[:, None])
        """,
        "what extensions change", "extensions that change positions would change nothing",
    ),
    "an extended encoding that forgets the plan": (
        f"""
        def extended(self, plan): return self
        def bias(self, pos_T, pos_S): return -{DISTANCE}[None]
        """,
        "what extensions change", "extensions that change which keys are seen would change nothing",
    ),
    "frequencies that no plan reaches": (
        ROTARY.replace("frequency_scale=plan.frequency_scale", ""),
        "what extensions change", "extensions that change frequencies would change nothing",
    ),
    "frequencies without a spectrum": (
        ROTARY.replace("return Spectrum(10.0, 8)", "return None"),
        "what extensions change", "accepts has FREQUENCIES: let spectrum return Spectrum(theta, count), not None",
    ),
    "a table that does not say where it ends": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.table = nn.Parameter(torch.zeros(dims.seq_len, dims.width))
        def embed(self, x, pos_T):
            return x + self.table[pos_T.long()]
        """,
        "far positions, to 16x L", "mine.py: embed failed at 128 tokens, 2 times L: IndexError",
    ),
    "a table that ends before L": (
        "max_length = 48", "far positions, to 16x L", "mine.py: max_length is 48, and the training length is 64",
    ),
    "a bias that overflows": (
        f"def bias(self, pos_T, pos_S): return (0.2 * {DISTANCE}).exp()[None]",
        "far positions, to 16x L", "mine.py: bias makes the logits nan or infinite at 512 tokens",
    ),
    "a root, whose gradient is infinite at 0": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.slope = nn.Parameter(torch.tensor(1.0))
        def bias(self, pos_T, pos_S):
            return -(self.slope * (pos_T[:, None] - pos_S[None, :]).clamp(min=0)).sqrt()[None]
        """,
        "far positions, to 16x L", "mine.py: bias makes the gradient of blocks.0.encoding.slope nan or infinite",
    ),
    "a layer of weights over positions": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.layer = nn.Linear(1, dims.heads)
        def bias(self, pos_T, pos_S):
            return self.layer((pos_T[:, None] - pos_S[None, :])[..., None]).permute(2, 0, 1).float()
        """,
        "autocast", "mine.py: bias makes autocast change the logits by ",
    ),
    "angles in bfloat16": (
        ROTARY.replace("torch.outer(pos, frequencies)", "torch.outer(pos, frequencies).to(x.dtype)"),
        "autocast", "mine.py: rotate makes autocast change the logits by ",
    ),
    "a count that is not saved": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.seen = 0
        def embed(self, x, pos_T):
            self.seen += self.training
            return x * (1 + 0.1 * self.seen)
        """,
        "exact resume", "for self.seen is not saved: keep what changes or is drawn in a parameter or a buffer",
    ),
    "numbers that are drawn and not saved": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.shift = torch.randn(dims.width)
        def embed(self, x, pos_T):
            return x + self.shift
        """,
        "exact resume", "for self.shift is not saved",
    ),
    "steps counted, not those of a training that goes on": (
        """
        def __init__(self, dims):
            super().__init__(dims)
            self.steps = 0
        def begin_step(self, done):
            self.steps += 1
        def embed(self, x, pos_T):
            return x + 0.01 * self.steps if self.training else x
        """,
        "exact resume", "for self.steps is not saved",
    ),
    "embeddings doubled": (
        "def embed(self, x, pos_T): return 2 * x",
        "scale at the start", "mine.py: embed multiplies its input by 2.00; expected 1",
    ),
    "a norm of embeddings, of the size that they have": (
        "def embed(self, x, pos_T): return 0.5 * nn.functional.rms_norm(x, x.shape[-1:])",
        "scale at the start", "mine.py: embed multiplies its input by 0.0",
    ),
    "values scaled, in one layer": (
        "def attention_input(self, x, pos_T): return x, x * (1 - 0.3 * self.dims.layer)",
        "scale at the start", "mine.py: attention_input multiplies its input by 0.70",
    ),
    "queries and keys normalised": (
        "def rotate(self, q, k, *more): return tuple(nn.functional.rms_norm(x, x.shape[-1:]) for x in (q, k))",
        "scale at the start", "mine.py: rotate multiplies its input by 0.00",
    ),
    "what a hook rescales, and no table says": (
        """
        rescales = frozenset({"embed"})
        def embed(self, x, pos_T): return 2 * x
        """,
        "scale at the start", "mine.py: rescales names embed: say in caption what it does",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "part", "message"), WRONG.values(), ids=WRONG)
def test_the_part_that_finds_it_names_the_hook(tmp_path: Path, body: str, part: str, message: str) -> None:
    for found in of_encoding(written(tmp_path, body), {}, 64):
        if found.name == part:
            assert message in found.wrong
            return
    pytest.fail(f"{part} did not run")


def test_a_bias_of_content_is_told_where_it_belongs(checked: Checked) -> None:
    body = """
    def prepare(self, x):
        self.gates = x[..., :4].cumsum(dim=1).mT
    def bias(self, pos_T, pos_S):
        return self.gates[..., pos_T.long()].unsqueeze(-1) - self.gates[..., pos_S.long()].unsqueeze(-2)
    """
    (part,) = checked(body).values()
    said = "bias returned [2, 4, 64, 64]; expected [H=4, T=64, S=64]: what depends on content belongs in `scores`"
    assert f"mine.py: {said}, with `context.state`" in part.wrong


def test_a_window_or_a_layer_of_weights_over_content_is_no_fault(checked: Checked) -> None:
    body = """
    window = 8
    accepts = frozenset({LOGITS})
    def __init__(self, dims):
        super().__init__(dims)
        self.gate = nn.Linear(dims.width, dims.heads)
    def prepare(self, x):
        return self.gate(x).float().transpose(1, 2)
    def scores(self, q, k, context):
        return scaled_product(q, k) + context.state[:, :, None, context.keys]
    """
    assert {name: part.wrong for name, part in checked(body).items() if part.wrong} == {}


def test_what_a_table_says_may_be_rescaled(checked: Checked) -> None:
    body = """
    caption = "Mine: embeddings are doubled"
    rescales, accepts = frozenset({"embed"}), frozenset({LOGITS})
    def embed(self, x, pos_T): return 2 * x
    """
    assert {name: part.wrong for name, part in checked(body).items() if part.wrong} == {}
