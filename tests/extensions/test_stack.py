"""What can be joined, what applies to which encoding, and that nothing is left behind."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import Dims, encodings
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.encodings.rope import RoPE
from extrapolate.errors import UserError
from extrapolate.extensions import stack
from extrapolate.extensions.base import extensions
from extrapolate.model.model import Model

HERE = Path(__file__).parent
ENCODINGS = HERE.parent / "encodings"
L = 16
ROTARY = "rope p-rope partial-rope xpos hope fope pope rnope local-global scale-invariant gape"
BIAS = "alibi t5 kerple sandwich fire dape bam grape tapa"
WRITTEN = "expe exqpe"
CONTENT = "cope fox wall path"
EVERY = f"{ROTARY} {BIAS} {WRITTEN} {CONTENT} shaw none sinusoidal learned random"
APPLIES = {
    "pi": f"{ROTARY} {BIAS} {WRITTEN} sinusoidal",
    "ntk": ROTARY,
    "dynamic-ntk": ROTARY,
    "ntk-by-parts": ROTARY,
    "yarn": ROTARY,
    "longrope": ROTARY,
    "llama3": ROTARY,
    "mrrope": ROTARY,
    "clipped-rope": ROTARY,
    "resonance": ROTARY,
    "p-rope": ROTARY,
    "expe-scale": WRITTEN,
    "table-resize": "learned",
    "window": f"{ROTARY} {BIAS} shaw none",
    "sinks": f"{ROTARY} {BIAS} shaw none",
    "lm-infinite": f"{ROTARY} {BIAS} shaw none",
    "rerope": f"{ROTARY} {BIAS} shaw",
    "self-extend": f"{ROTARY} {BIAS} shaw",
    "dual-chunk": f"{ROTARY} {BIAS} shaw",
    "string": f"{ROTARY} {BIAS} shaw",
    "jet-long": f"{ROTARY} {BIAS} shaw",
    "jet-long-freq": ROTARY.replace("fope ", ""),
    "log-n": EVERY,
    "temperature": EVERY,
}


# Of 8 pairs, within 16 tokens, HoPE, FoPE and scale-invariant attention keep the fastest, which these leave alone; and
# what is dropped in training cannot be dropped again.
UNMOVED = {
    *(
        (encoding, name)
        for encoding in ("hope", "fope", "scale-invariant")
        for name in ("ntk", "dynamic-ntk", "ntk-by-parts", "p-rope", "clipped-rope")
    ),
    ("p-rope", "p-rope"),
    ("p-rope", "clipped-rope"),
}


def whole(name: str) -> str:
    """A stack without a constant to fit."""
    return name + {"temperature": ":c=0.3", "critical-band": ":first=0"}.get(name, "")


def test_the_table_names_everything_that_has_no_test_of_its_own() -> None:
    """A test file with the addition's name says there what applies to it, or what it applies to."""
    for names, listed, folder in ((extensions.names(), APPLIES, HERE), (encodings.names(), EVERY.split(), ENCODINGS)):
        assert set(listed) <= set(names)
        assert {name for name in names if not (folder / f"test_{name.replace('-', '_')}.py").exists()} <= set(listed)


@pytest.mark.parametrize("encoding", EVERY.split())
def test_what_applies(encoding: str, make_model: Callable[..., Model]) -> None:
    model = make_model(encoding, L)
    expected = sorted(name for name, allowed in APPLIES.items() if encoding in allowed.split())
    assert [name for name in stack.applicable(model) if name in APPLIES] == expected
    for name in APPLIES:
        made = stack.parse(name)
        if name in expected:
            stack.check_applies(made, model)
            assert stack.reason_against(stack.extensions[name](), model) is None
            continue
        with pytest.raises(ValueError, match=f"^{name} does not apply to ") as caught:
            stack.check_applies(made, model)
        message = str(caught.value)
        changed = {
            "pi": "positions", "expe-scale": "values", "table-resize": "the table of positions",
            "window": "which keys are seen", "sinks": "which keys are seen", "lm-infinite": "which keys are seen",
            "rerope": "distances of pairs", "self-extend": "distances of pairs", "dual-chunk": "distances of pairs",
            "string": "distances of pairs", "jet-long": "distances of pairs",
        }.get(name, "frequencies")  # fmt: skip
        label = model.encoding.display
        if (encoding, name) == ("fope", "jet-long-freq"):
            continue
        assert f"{label}: it changes {changed}, and {label} has none that can be changed at inference" in message
        assert message.endswith(f"; what applies: {', '.join(stack.applicable(model))}")


def test_one_part_that_does_not_apply_is_enough(make_model: Callable[..., Model]) -> None:
    with pytest.raises(ValueError, match=r"^yarn does not apply to ALiBi"):
        stack.check_applies(stack.parse("log-n + yarn:factor=2"), make_model("alibi", L))


def test_a_wrapper_takes_what_its_base_takes(make_model: Callable[..., Model]) -> None:
    assert stack.applicable(make_model("dape:base=t5", L)) == stack.applicable(make_model("t5", L))
    assert stack.applicable(make_model("random:base=alibi", L)) == ["llama4", "log-n", "temperature"]
    by_distance = {"rerope", "self-extend", "dual-chunk", "jet-long", "jet-long-freq", "string"}
    for name in ("random:evaluate=first", "pose"):  # plain positions, but pairs' are not those of training
        assert set(stack.applicable(make_model(name, L))) == {*stack.applicable(make_model("rope", L))} - by_distance


def settings(model: Model) -> list[tuple[str, Any]]:
    """Every number, text and tuple that the model's modules hold."""
    kinds = (int, float, str, tuple, type(None))
    return [
        (f"{name}.{key}", value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, kinds)
    ]


@pytest.mark.parametrize("encoding", encodings.names())
def test_nothing_is_left_behind(encoding: str, make_model: Callable[..., Model], logits: Callable[..., Tensor]) -> None:
    model = make_model(encoding, L)
    length = L if encoding == "learned" else 2 * L
    before = logits(model, length)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    configuration = settings(model)
    for name in stack.applicable(model):
        plan = stack.parse(whole(name)).plan(model.encoding, L, 2 * L)
        changed = logits(model, 2 * L, plan)
        assert torch.isfinite(changed).all()
        assert settings(model) == configuration, name
        assert torch.equal(logits(model, length), before), name
        if encoding != "learned":
            same = torch.allclose(changed, before, atol=1e-4)
            assert same == ((encoding, name) in UNMOVED), name
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", APPLIES)
def test_plans_are_values(name: str, make_model: Callable[..., Model]) -> None:
    model = make_model(APPLIES[name].split()[0], L)
    one, two = (stack.parse(whole(name)).plan(model.encoding, L, 4 * L) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != PLAIN
    assert len({one, two, PLAIN}) == 2


@pytest.mark.parametrize("name", sorted(APPLIES.keys() - {"p-rope", "clipped-rope", "resonance", "string"}))
def test_a_whole_recipe_without_numbers_changes_nothing_within_the_training_length(
    name: str, make_model: Callable[..., Model]
) -> None:
    """Except where a number is given: p-rope and its kin change pairs at any length, STRING sharpens scores at any, and
    ReRoPE and Dual Chunk have windows.
    """
    model = make_model(APPLIES[name].split()[0], L)
    for length in (1, L // 8, L) if name not in ("rerope", "dual-chunk") else (1, L // 8):
        assert stack.parse(whole(name)).plan(model.encoding, L, length) == PLAIN


JOINED = [
    "yarn:factor=8 + log-n", "pi + log-n", "log-n + temperature:c=0.3", "pi:factor=2 + ntk:factor=2",
    "window + ntk", "pi + rerope", "yarn + temperature:c=0.3", "self-extend + log-n", "p-rope + window + log-n",
]  # fmt: skip


@pytest.mark.parametrize("text", JOINED)
def test_joined_plans_change_what_each_part_changes(text: str, make_model: Callable[..., Model]) -> None:
    encoding = make_model("rope", L).encoding
    plan = stack.parse(text).plan(encoding, L, 4 * L)
    backwards = stack.parse(" + ".join(reversed(text.split(" + ")))).plan(encoding, L, 4 * L)
    assert plan == backwards
    merged: dict[str, Any] = {}
    scale = 1.0
    for part in text.split(" + "):
        own = stack.parse(part).plan(encoding, L, 4 * L)
        scale *= own.logit_scale
        merged |= {name: value for name, value in vars(own).items() if value != vars(PLAIN)[name]}
    assert plan == Plan(**merged | {"logit_scale": pytest.approx(scale)})


@pytest.mark.parametrize(
    ("text", "names", "slot"),
    [
        ("pi + pi:factor=2", ("PI", "PI"), "positions"),
        ("ntk + yarn", ("NTK", "YaRN"), "frequencies"),
        ("p-rope + log-n + llama3", ("p-RoPE", "Llama 3"), "frequencies"),
        ("window + rerope", ("Window", "ReRoPE"), "pairs"),
        ("sinks + lm-infinite", ("Sinks", "LM-Infinite"), "pairs"),
        ("self-extend + dual-chunk", ("Self-Extend", "Dual Chunk"), "pairs"),
        ("expe-scale + expe-scale", ("Scale", "Scale"), "values"),
        ("expe-scale:reading=positions + pi", ("Scale", "PI"), "positions"),
        ("pi + table-resize", ("PI", "Resize"), "positions"),
        ("log-n + log-n", ("log-n", "log-n"), "scale"),
        ("temperature:c=1 + temperature", ("Temperature", "Temperature"), "scale"),
    ],
)
def test_what_clashes(text: str, names: tuple[str, str], slot: str) -> None:
    reason = (
        f"{names[0]} is there twice" if names[0] == names[1] else f"{names[0]} and {names[1]} both change the {slot}"
    )
    message = f"'{text}' cannot be joined: {reason}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        stack.parse(text)
    first, rest = text.split(" + ", 1)
    assert " + " in rest or not stack.joins(stack.parse(first), rest)


def test_joins() -> None:
    pi = stack.parse("pi")
    assert stack.joins(pi, "log-n")
    assert stack.joins(pi, "window")
    assert stack.joins(pi, "expe-scale")
    assert not stack.joins(pi, "pi:factor=3")
    both = pi.joined(stack.parse("log-n"))
    assert both.text == "pi + log-n"
    assert both.label() == "PI + log-n"
    with pytest.raises(ValueError, match="cannot be joined"):
        both.joined(stack.parse("log-n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yarm", "unknown extension 'yarm'; did you mean 'yarn'?"),
        ("pi + logn", "unknown extension 'logn'; did you mean 'log-n'?"),
        ("fx-rope", "unknown extension 'fx-rope'; did you mean 'p-rope'?"),
        ("qqq", "unknown extension 'qqq'; known: clipped-rope, critical-band, dual-chunk"),
        ("pi:faktor=2", "pi has no argument 'faktor'; did you mean 'factor'?"),
        ("log-n:c=2", "log-n has no argument 'c'; known: offset"),
        ("log-n:offset=1", "log-n: offset must be at least 2 tokens, not 1"),
        ("pi:factor", "'factor' in 'pi:factor' is not an argument: expected key=value"),
        ("pi:factor=x", "pi: factor=x is not a finite number"),
        ("", "an extension must be named"),
        (" + ", "an extension must be named"),
        ("longrope:long=(1,2", "do not match"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stack.parse(text)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("pi", "PI"),
        ("pi:factor=2", "PI(2)"),
        ("ntk", "NTK"),
        ("dynamic-ntk:factor=2", "Dynamic NTK"),
        ("dynamic-ntk:factor=1.5", "Dynamic NTK(1.5)"),
        ("ntk-by-parts:ramp=turns", "NTK-by-parts(ramp=turns)"),
        ("yarn:factor=8 + log-n", "YaRN(8) + log-n"),
        ("longrope:long=(1,2)", "LongRoPE(long=1,2)"),
        ("longrope:long=(1,1.5,2,2.5,3,3.5,4,4.5,5)", "LongRoPE(long=1,1.5,2,2.5,3,3.5,4,4.5,...5483)"),
        ("llama3:factor=8,fast=5", "Llama 3(8, fast=5)"),
        ("p-rope", "p-RoPE"),
        ("p-rope:p=0.5", "p-RoPE(0.5)"),
        ("expe-scale:factor=0.5", "Scale(0.5)"),
        ("expe-scale:reading=positions", "Scale(reading=positions)"),
        ("table-resize", "Resize"),
        ("window:size=32", "Window(32)"),
        ("sinks:window=12", "Sinks(window=12)"),
        ("lm-infinite:sinks=4,window=12", "LM-Infinite(4, window=12)"),
        ("rerope:window=8,k=16", "ReRoPE(8, k=16)"),
        ("self-extend:group=4,window=8", "Self-Extend(4, window=8)"),
        ("dual-chunk:chunk=12,local=2", "Dual Chunk(12, local=2)"),
        ("temperature", "Temperature"),
        ("temperature:c=0.412", "Temperature(0.412)"),
    ],
)
def test_labels(text: str, label: str) -> None:
    assert stack.parse(text).label() == label


@pytest.mark.parametrize("name", extensions.names())
def test_no_two_have_one_label_and_none_has_two_texts(name: str) -> None:
    """Each argument by itself is given the same value: the labels differ. Defaults that are given leave no trace."""
    parameters = specs.parameters(extensions[name])
    for value in ("2", "16", "0.5", "12"):
        labels = []
        for argument in parameters:
            with contextlib.suppress(UserError):  # not a value for this one
                labels.append(stack.parse(f"{name}:{argument}={value}").label())
        changed = [label for label in labels if label != extensions[name].display]
        assert len(set(changed)) == len(changed)
    for argument, its in parameters.items():
        if its.default is not None:
            assert stack.parse(specs.spell(name, {argument: its.default})).text == name


def test_a_recipes_text_is_tidied_and_read_back() -> None:
    assert stack.parse("yarn:fast=16,factor=8.0").text == stack.parse("yarn:factor=8,fast=16,slow=1").text
    assert stack.parse("yarn:fast=16,factor=8.0").text == "yarn:factor=8,fast=16"
    assert stack.parse("yarn:layers=all").text == "yarn"
    assert stack.parse("yarn:layers=global,fast=16").text == "yarn:fast=16,layers=global"
    made = stack.parse("  yarn:factor=8+log-n ")
    assert made.text == "yarn:factor=8 + log-n"
    assert stack.parse(made.text).label() == made.label()
    assert stack.parse("longrope:long=(1,2) + log-n").text == "longrope:long=(1,2) + log-n"


def test_docstrings_name_their_source() -> None:
    for name in extensions.names():
        assert extensions[name].source.removeprefix("arXiv ") in (extensions[name].__doc__ or "")


@pytest.mark.parametrize(
    "text",
    [
        "pi:factor=1e-308", "ntk:factor=1e-320", "yarn:factor=1e-300", "temperature:c=1e38",
        "ntk-by-parts:fast=1e38,slow=1e-320",
        "longrope:long=(1e308,1e-320,1,1,1,1,1,1)", "temperature:c=1e29 + yarn:factor=1e29,fast=1e29",
    ],
)  # fmt: skip
def test_a_number_that_float32_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="at 64 tokens by a number that float32 does not have"):
        stack.parse(text).plan(RoPE(Dims(64, 4, 16, L)), L, 64)


def test_large_numbers_that_mean_something_are_not_refused() -> None:
    for text in ("pi:factor=1e20", "ntk:factor=1e30", "self-extend:group=999999999999999", "rerope:k=1e38"):
        stack.parse(text).plan(RoPE(Dims(64, 4, 16, L)), L, 64)


OWN = """
import torch
from dataclasses import dataclass
from extrapolate.encodings.base import MASK
from extrapolate.encodings.plan import Branch, Pairs, Plan
from extrapolate.extensions.base import Extension

class All(Pairs):
    def __init__(self, speed): object.__setattr__(self, "speed", speed)
    def branches(self): return [Branch(lambda i: i * self.speed, lambda j: j * self.speed, lambda i, j: j <= i)]

class Own(Extension):
    display, source, slot, needs = "Own", "this file", "pairs", MASK
    def plan(self, encoding, seq_len, length):
"""


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("encoding.window = 4; return Plan()", "Own: plan at 32 tokens changes the encoding's window, and with it all"),
        ("encoding.fresh = 4; return Plan()", "Own: plan at 32 tokens changes the encoding's fresh"),
        (
            "[p.data.mul_(0.5) for p in encoding.parameters()]; return Plan()",
            r"Own: plan at 32 tokens changes the encoding's [a-z0-9_.]+, and",
        ),
        ("return Plan(pairs=All(length))", r"Own: All needs @dataclass\(frozen=True\), so that equal plans are alike"),
    ],
)
def test_a_plan_that_would_change_other_rows_is_refused(tmp_path: Path, body: str, wrong: str) -> None:
    """By writing to the encoding, or by being equal to other plans."""
    (tmp_path / "own.py").write_text(OWN + f"        {body}\n")
    encoding = encodings["fire"](Dims(32, 2, 16, seq_len=L))
    before = {name: x.clone() for name, x in encoding.state_dict().items()}
    with pytest.raises(UserError, match=wrong):
        stack.parse(f"{tmp_path / 'own.py'}:Own").plan(encoding, L, 2 * L)
    assert encoding.window is None
    assert all(torch.equal(x, encoding.state_dict()[name]) for name, x in before.items())
