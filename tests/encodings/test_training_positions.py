"""The curriculum: the range that grows in training, in copies and in compiled code, and what it leaves alone."""

import math
from collections import Counter

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from extrapolate import specs
from extrapolate.encodings.base import Dims, Encoding
from extrapolate.encodings.plan import Plan
from extrapolate.model.model import layer_encodings

L, MOST = 5, 47
NAMES = ("random", "pose", "rfs")


def made(spec: str, seq_len: int = L) -> Encoding:
    parsed = specs.parse(spec)
    return layer_encodings(parsed.name, parsed.arguments, Dims(33, 3, 22, seq_len, layers=2))[0].train()


def index(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.float32)


def farthest(encoding: Encoding, draws: int = 400, length: int = L) -> float:
    torch.manual_seed(0)
    return max(float(encoding.positions(index(length))[-1]) for _ in range(draws))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("curriculum", [0.5, 1.0])
@pytest.mark.parametrize("done", [0.0, 0.1, 0.25, 0.5, 0.9])
def test_the_range_grows_linearly_from_the_window_s_length_to_max(name: str, curriculum: float, done: float) -> None:
    encoding = made(f"{name}:max={MOST},curriculum={curriculum}")
    encoding.begin_step(done)
    end = L + min(1.0, done / curriculum) * (MOST - L)
    # Whole numbers below the end, of which PoSE's are counted from the window's length on.
    last = {"random": math.ceil(end) - 1, "pose": math.floor(end) - 1, "rfs": end}[name]
    assert last * (0.97 if name == "rfs" else 1) - 0.001 <= farthest(encoding) <= last + 1e-5


@pytest.mark.parametrize("name", ["random", "pose"])
def test_it_begins_with_plain_windows(name: str) -> None:
    encoding = made(f"{name}:max={MOST},curriculum=0.5")
    encoding.begin_step(0.0)
    for length in (L, 2 * L + 1):  # a run that goes on with longer windows begins with their length
        assert all(torch.equal(encoding.positions(index(length)), index(length)) for _ in range(20))


def test_within_the_range_every_set_of_positions_is_as_likely_as_any_other() -> None:
    encoding = made("random:max=10,curriculum=0.5", 3)
    encoding.begin_step(0.5 * 2 / 7)  # 3 + 2
    torch.manual_seed(0)
    counts = Counter(tuple(encoding.positions(index(3)).tolist()) for _ in range(2000))
    assert len(counts) == 10
    assert 140 < min(counts.values()) <= max(counts.values()) < 260, counts  # 200 each, give or take 13


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("curriculum", ["", ",curriculum=0.5"])
def test_the_whole_range_is_open_unless_a_training_says_otherwise(name: str, curriculum: str) -> None:
    """Outside a training, after one, and at every step of one without a curriculum."""
    encoding = made(f"{name}:max={MOST}{curriculum}")
    assert farthest(encoding) > 0.97 * (MOST - 1)
    encoding.begin_step(0.9 if curriculum else 0.0)
    assert farthest(encoding) > 0.97 * (MOST - 1)


def test_without_a_curriculum_the_draws_are_those_of_a_permutation() -> None:
    for encoding in (made(f"random:max={MOST}"), made(f"random:max={MOST},curriculum=0.5")):
        encoding.begin_step(0.75)
        torch.manual_seed(3)
        drawn = encoding.positions(index(L))
        torch.manual_seed(3)
        assert drawn.tolist() == sorted(torch.randperm(MOST)[:L].tolist())


@pytest.mark.parametrize("spec", [*NAMES, "random:evaluate=spread", "random:evaluate=first"])
def test_evaluation_is_the_same_at_every_step(spec: str) -> None:
    separator = "," if ":" in spec else ":"
    encoding = made(f"{spec}{separator}max={MOST},curriculum=0.5").eval()
    before = encoding.positions(index(2 * L))
    encoding.begin_step(0.0)
    assert torch.equal(encoding.positions(index(2 * L)), before)


@pytest.mark.parametrize("name", NAMES)
def test_copies_that_were_made_before_and_encodings_inside_another_keep_step(name: str) -> None:
    wrapped = made(f"dape:base=({name}:base=alibi,max={MOST},curriculum=1)")
    copies = [wrapped.extended(Plan(window=3)), wrapped.rounded_to("bf16"), wrapped.extended(Plan()).rounded_to("bf16")]
    for done in (0.0, 0.5):
        wrapped.begin_step(done)
        for encoding in (wrapped, *copies):
            assert farthest(encoding) <= L + done * (MOST - L)
    assert farthest(copies[0]) > L + 0.4 * (MOST - L)


def test_nothing_of_it_is_saved_or_moved() -> None:
    encoding = made(f"pose:max={MOST},curriculum=0.5").to("meta")
    assert not encoding.state_dict()
    encoding.begin_step(0.25)
    assert float(encoding.reach(L)) == L + 0.5 * (MOST - L)


def test_compiled_code_follows_without_being_compiled_again() -> None:
    encodings = [made(f"{name}:max={MOST},curriculum=1").extended(Plan(logit_scale=1.5)) for name in NAMES]
    counter = CompileCounter()
    compiled = torch.compile(lambda index_T: [each.positions(index_T) for each in encodings], backend=counter)
    torch.manual_seed(0)
    seen: list[list[Tensor]] = []
    for step in range(20):
        for encoding in encodings:
            encoding.begin_step(step / 20)
        seen.append(compiled(index(L)))
        assert all(found[-1] <= L + step / 20 * (MOST - L) for found in seen[-1])
    assert counter.frame_count == 1
    for drawn in zip(*seen, strict=True):
        assert max(float(found[-1]) for found in drawn) > MOST / 2
        assert len({tuple(found.tolist()) for found in drawn}) > 10
