"""Checks the hooks of an encoding from a user's file, in a fraction of a second.

Shapes: B windows, T queries, S keys, D width, H heads, G key and value heads, K head dim.
"""

import dataclasses
import difflib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import (
    DISTANCES,
    FREQUENCIES,
    MASK,
    POSITIONS,
    Context,
    Dims,
    Encoding,
    scaled_product,
)  # fmt: skip
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.model.answers import CONTENT, Asked, attempt, what_is
from extrapolate.model.attention import chunk_context
from extrapolate.specs.user_files import described

_Places = Callable[..., tuple[Tensor, ...]]
HOOKS = (
    "positions",
    "embed",
    "attention_input",
    "prepare",
    "rotate",
    "bias",
    "scores",
    "weights",
    "mix",
    "begin_step",
    "constrain",
    "spectrum",
    "extended",
)
LENGTH = 64  # tokens in a window of the check
WINDOWS = 2  # B; more than 1, so that a hook that confuses axes does not pass by chance
TOLERANCE = 1e-4  # of the largest number; another order of summation in float32 changes less
NEAR = 0.75  # the similarity of a mistyped hook's name: "rotat" counts as one, "rotate_half" does not


def check(cls: type[Encoding], file: Path, make: Callable[[], list[Encoding]], dims: Dims, kv_heads: int) -> None:
    """Raises UserError if the class in a user's file is wrong: with the file, the hook, and what was expected.

    `make` returns a new instance for each layer, since hooks may keep something from the check. Does not change torch's
    random state.
    """
    check_names(cls, file)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        layers: list[Encoding] = attempt(file, "__init__", make)
        for number, encoding in enumerate(layers):
            check_attributes(encoding, file, dataclasses.replace(dims, layer=number))
        move_from_constants(layers)
        length = min(LENGTH, dims.seq_len, *(layer.max_length or LENGTH for layer in layers))
        sample = Sample.draw(dims, kv_heads, length)
        Asked(layers[0].train(), file).positions(sample.index_T)
        pos_T = Asked(layers[0].eval(), file).positions(sample.index_T)
        for number, encoding in enumerate(layers):
            asked = Asked(encoding.eval(), file, number)
            asked.call("begin_step", 0.5)
            asked.call("constrain")
            check_places(asked, sample, pos_T)
            check_bias_reads_no_content(asked, sample, pos_T)
            check_chunks(asked, sample, pos_T)
            check_bias_reads_positions(asked, sample, pos_T)
            check_frequencies(asked, sample, pos_T)


def check_names(cls: type[Encoding], file: Path) -> None:
    """Raises UserError if a method is not a hook, but its name is close to that of one that the class lacks."""
    inherited = {name for base in cls.__mro__ if base.__module__ != cls.__module__ for name in vars(base)}
    own = {
        name: value for base in cls.__mro__ if base.__module__ == cls.__module__ for name, value in vars(base).items()
    }
    missing = [hook for hook in HOOKS if hook not in own]
    for name, value in own.items():
        if name.startswith("_") or name in inherited or not callable(value):
            continue
        if near := difflib.get_close_matches(name, missing, n=1, cutoff=NEAR):
            raise UserError(
                f"{file}: {name} is no hook, and nothing calls it; did you mean '{near[0]}'? "
                f"Where it is a helper of your own, call it _{name}"
            )


def check_attributes(encoding: Encoding, file: Path, dims: Dims) -> None:
    """Raises UserError if an instance does not keep its arguments, or has invalid attributes."""
    if not {"_parameters", "dims"} <= vars(encoding).keys():
        raise UserError(f"{file}: __init__ must begin with super().__init__(dims)")
    own = {
        *vars(encoding),
        *(name for part in ("_modules", "_parameters", "_buffers") for name in vars(encoding)[part]),
    }
    for hook in HOOKS:
        if hook in own:
            raise UserError(f"{file}: self.{hook} has the name of a hook: keep it under another name")
    for name in ("window", "max_length"):
        value = getattr(encoding, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UserError(f"{file}: {name} is {value!r}; expected a positive whole number of tokens, or None")
    parameters = specs.parameters(type(encoding))
    try:
        arguments = encoding.arguments()
    except AttributeError as error:
        for name in parameters:
            if not hasattr(encoding, name):
                raise UserError(f"{file}: keep argument {name} as self.{name}: it is stored with the run") from error
        raise UserError(f"{file}: arguments failed: {described(error, file)}") from error
    for name, value in arguments.items():
        if name in parameters and not _is_value(parameters[name], value):
            raise UserError(
                f"{file}: self.{name} is {what_is(value)}, and argument {name} is {parameters[name].kind()}: keep the "
                f"argument as self.{name}, and what is made of it under another name"
            )
    again = attempt(file, "__init__", lambda: type(encoding)(dims, **arguments).arguments())
    for name, value in arguments.items():
        if again[name] != value:
            raise UserError(
                f"{file}: self.{name} is {value}, and an encoding made with {name}={value} has {again[name]}: keep the "
                f"argument as self.{name}, and what is made of it under another name"
            )


def move_from_constants(layers: list[Encoding]) -> None:
    """Adds random numbers to parameters that are constant, whose equal elements would hide wrong indices, and to the
    zeros of trained parameters, which hide whatever they multiply.
    """
    for parameter in {id(p): p for layer in layers for p in layer.parameters()}.values():
        if not (parameter.is_floating_point() and parameter.numel()):
            continue
        if parameter.min() == parameter.max():
            start = parameter.flatten()[0].abs().item()
            parameter.add_(torch.rand_like(parameter) * (start / 2 or 0.1))
        elif parameter.requires_grad:
            parameter.add_(torch.rand_like(parameter).mul(0.1).masked_fill(parameter != 0, 0.0))


@dataclass(frozen=True)
class Sample:
    """Random inputs for the hooks, as in a model."""

    index_T: Tensor
    x_BTD: Tensor
    q_BHTK: Tensor
    k_BGTK: Tensor

    @classmethod
    def draw(cls, dims: Dims, kv_heads: int, length: int) -> "Sample":
        """Draws normal numbers, float32."""
        heads = (torch.randn(WINDOWS, count, length, dims.head_dim) for count in (dims.heads, kv_heads))
        return cls(torch.arange(length, dtype=torch.float32), torch.randn(WINDOWS, length, dims.width), *heads)


def check_places(asked: Asked, sample: Sample, pos_T: Tensor) -> None:
    """Raises UserError if embed, attention_input or rotate count tokens instead of reading positions.

    Leaving out earlier tokens must not change what becomes of a token, or the product of a query and a key, unless the
    content of those tokens matters. Counting is fine if no extension may change positions.
    """
    length = len(pos_T)
    calls: dict[str, tuple[_Places, tuple[Tensor, ...]]] = {
        "attention_input": (lambda x: asked.attention_input(x, pos_T[-x.shape[1] :]), (sample.x_BTD,)),
    }
    if asked.prepare(sample.x_BTD[:, :1]) is None:  # otherwise `rotate` gets all tokens
        calls["rotate"] = (
            lambda q, k: (_product(*asked.rotate(q, k, pos_T[-q.shape[2] :], pos_T[-k.shape[2] :], None)),),
            (sample.q_BHTK, sample.k_BGTK),
        )
    if asked.layer == 0:
        calls["embed"] = (lambda x: (asked.embed(x, pos_T[-x.shape[1] :]),), (sample.x_BTD,))
    for hook, (call, tensors) in calls.items():
        whole = call(*tensors)
        if not asked.encoding.accepts & {POSITIONS, DISTANCES}:
            continue
        starts = (length * 3 // 8, length // 6)[: len(tensors)]  # different numbers of queries and keys
        asked.case = f" (tokens {' and '.join(f'{start}..{length - 1}' for start in starts)} of {length})"
        alone = call(*(x[..., start:, :] for x, start in zip(tensors, starts, strict=True)))
        asked.case = ""
        for number, own in enumerate(alone):
            rows, columns = (slice(-size, None) for size in own.shape[-2:])
            among = whole[number][..., rows, columns]
            if not differ(own, among):
                continue
            others = call(*(_others_before(x, start) for x, start in zip(tensors, starts, strict=True)))
            if not differ(others[number][..., rows, columns], among):
                raise asked.wrong(
                    hook,
                    f"gives tokens {starts[0]}..{length - 1} other numbers when those before them are left out: take "
                    f"positions from {'pos_T and pos_S' if hook == 'rotate' else 'pos_T'}, not from a length or arange",
                )


def _product(q_BHTK: Tensor, k_BGSK: Tensor) -> Tensor:
    """The products of queries and keys, [B, H, T, S]."""
    return q_BHTK @ k_BGSK.repeat_interleave(q_BHTK.shape[1] // k_BGSK.shape[1], dim=1).mT


def _others_before(x: Tensor, start: int) -> Tensor:
    return torch.cat([-x[..., :start, :], x[..., start:, :]], dim=-2)


def check_chunks(asked: Asked, sample: Sample, pos_T: Tensor) -> None:
    """Raises UserError if bias or scores depend on the chunk that a query is in, windowed or not, or `mix` is wrong."""
    state = asked.prepare(sample.x_BTD)
    q_BHTK, k_BGTK = asked.rotate(sample.q_BHTK, sample.k_BGTK, pos_T, pos_T, state)
    k_BHTK = k_BGTK.repeat_interleave(q_BHTK.shape[1] // k_BGTK.shape[1], dim=1)
    views = [asked]
    if MASK in asked.encoding.accepts:
        window = max(1, len(pos_T) // 5)
        views.append(asked.extended(Plan(window=window), f" (with a window of {window})"))
    for view in views:
        _check_chunks_of(view, q_BHTK, k_BHTK, pos_T, state)
    asked.mix(q_BHTK, k_BGTK, sample.k_BGTK, state)


def _check_chunks_of(asked: Asked, q_BHTK: Tensor, k_BHTK: Tensor, pos_T: Tensor, state: Any) -> None:
    length = len(pos_T)
    whole = chunk_context(asked.encoding, pos_T, pos_T, state, 0, length)
    of_all = _of(asked, q_BHTK, k_BHTK, whole)
    cuts = sorted({0, 1, length * 3 // 8, length * 7 // 8, length})  # attention also calls with the first query alone
    for start, end in itertools.pairwise(cuts):
        context = chunk_context(asked.encoding, pos_T, pos_T, state, start, end)
        queries, keys = context.queries, context.keys
        case = f"{asked.case} (queries {start}..{end - 1} of {length}, keys {keys.start}..{end - 1})"
        chunk = asked.but(case=case)
        of_some = _of(chunk, q_BHTK[:, :, queries], k_BHTK[:, :, keys], context)
        for hook, some in of_some.items():
            among_all = of_all[hook]
            if some is None or among_all is None:
                if some is not among_all:
                    raise chunk.wrong(
                        hook, "returned None for some queries, and a tensor for others; expected the same"
                    )
                continue
            among_all = among_all[..., queries, keys]
            wrong = _differences(*(x.masked_fill(context.hidden_TS, 0.0) for x in (some, among_all)))
            if wrong.any():
                *_, query, key = wrong.nonzero()[0].tolist()
                places = "pos_T and pos_S" if hook == "bias" else "context"
                raise chunk.wrong(
                    hook,
                    f"gives query {start + query} and key {keys.start + key} another number in a chunk of queries than "
                    f"among all: a hook is asked for some queries at a time; take their places from {places}, not from "
                    "a length or arange",
                )


def _of(asked: Asked, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> dict[str, Tensor | None]:
    """The results of the hooks that are called with a chunk of queries."""
    bias_HTS, scores_BHTS = asked.bias(context), asked.scores(q_BHTK, k_BHSK, context)
    own = scaled_product(q_BHTK, k_BHSK) if scores_BHTS is None else scores_BHTS
    masked_BHTS = (own if bias_HTS is None else own + bias_HTS).masked_fill(context.hidden_TS, float("-inf"))
    return {"bias": bias_HTS, "scores": scores_BHTS, "weights": asked.weights(masked_BHTS, context)}


def check_bias_reads_no_content(asked: Asked, sample: Sample, pos_T: Tensor) -> None:
    """Raises UserError if a bias depends on what `prepare` saw: it must be the same for all windows of a batch."""
    context = chunk_context(asked.encoding, pos_T, pos_T, None, 0, len(pos_T))
    found = []
    for x_BTD in (sample.x_BTD, -sample.x_BTD):
        asked.prepare(x_BTD)
        if (bias_HTS := asked.bias(context)) is None:
            return
        found.append(bias_HTS.masked_fill(context.hidden_TS, 0.0))
    if differ(*found):
        raise asked.wrong("bias", f"depends on content: {CONTENT}")


def check_bias_reads_positions(asked: Asked, sample: Sample, pos_T: Tensor) -> None:
    """Raises UserError if a bias ignores positions, so that extensions would silently change nothing."""
    if not asked.encoding.accepts & {POSITIONS, DISTANCES}:
        return
    context = chunk_context(asked.encoding, pos_T, pos_T, None, 0, len(pos_T))
    bias_HTS = asked.bias(context)
    if bias_HTS is None:
        return
    nowhere = torch.zeros_like(pos_T)
    moved_HTS = asked.but(case=" (where every token has position 0)").call("bias", nowhere, nowhere)
    seen_HN = bias_HTS[:, ~context.hidden_TS]
    varies = (seen_HN != seen_HN[:, :1]).any()
    if varies and not differ(moved_HTS[:, ~context.hidden_TS], seen_HN):
        raise asked.wrong(
            "bias",
            "is the same where every token has position 0: take places from pos_T and pos_S, not from a length or "
            "arange; or write accepts = frozenset() in the class, so that no extension changes positions",
        )


def check_frequencies(asked: Asked, sample: Sample, pos_T: Tensor) -> None:
    """Raises UserError if the encoding accepts other frequencies, but ignores them.

    A layer with a window may keep its own, since its pairs are never further apart than in training; so may a layer
    that replaces attention.
    """
    encoding = asked.encoding
    if FREQUENCIES not in encoding.accepts or encoding.window is not None or not encoding.attends():
        return
    count = asked.spectrum().count
    state = asked.prepare(sample.x_BTD)
    rotated = asked.rotate(sample.q_BHTK, sample.k_BGTK, pos_T, pos_T, state)[0]
    # Not halved: half of a small rotation might count as rounding.
    slower = asked.extended(Plan(frequency_scale=(0.0,) * count), " (with frequencies of 0)")
    again = slower.rotate(sample.q_BHTK, sample.k_BGTK, pos_T, pos_T, state)[0]
    turns = rotated.shape != sample.q_BHTK.shape or differ(rotated, sample.q_BHTK)
    if turns and not differ(again, rotated):
        raise slower.wrong(
            "rotate",
            "turns as before: let extended(plan) keep plan.frequency_scale, and multiply the frequencies by it",
        )


def differ(some: Tensor, others: Tensor) -> bool:
    """Whether two tensors differ by more than rounding."""
    return bool(_differences(some, others).any())


def _differences(some: Tensor, others: Tensor) -> Tensor:
    """Where two tensors differ by more than rounding; -inf equals itself."""
    largest = torch.where(others.isfinite(), others, 0.0).abs().amax()
    return ~((some == others) | ((some - others).abs() <= TOLERANCE * largest))


def _is_value(parameter: specs.Parameter, value: Any) -> bool:
    if not isinstance(value, int | float | str | None):
        return False
    try:
        return parameter.convert(value, parameter.name) == value
    except ValueError:
        return False
