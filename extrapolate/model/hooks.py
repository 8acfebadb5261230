"""Checks the hooks of an encoding from a user's file, in a fraction of a second.

Shapes: as in encodings/base.py.
"""

import dataclasses
import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extrapolate import specs
from extrapolate.encodings.base import DISTANCES, POSITIONS, Context, Dims, Encoding, scaled_product
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.model.attention import chunk_context
from extrapolate.model.llama import Decoder
from extrapolate.specs import user_files
from extrapolate.specs.user_files import described

# What the hooks return, in the order of the forward pass: the axes of a tensor, of two, or with `?` of one or None.
RETURNS = {
    "positions": "T", "embed": "BTD", "attention_input": "BTD BTD", "prepare": "", "rotate": "BHTK BGSK",
    "bias": "HTS?", "scores": "BHTS?", "weights": "BHTS?", "mix": "BHTK?",
}  # fmt: skip
HOOKS = (*RETURNS, "begin_step", "constrain", "spectrum", "extended")
LENGTH = 64  # tokens in a window of the check
WINDOWS = 2  # B; more than 1, so that a hook that confuses axes does not pass by chance
TOLERANCE = 1e-4  # of the largest number; another order of summation in float32 changes less
NEAR = 0.75  # the similarity of a mistyped hook's name: "rotat" counts as one, "rotate_half" does not
CONTENT = "what depends on content belongs in `scores`, with `context.state`"


def check(cls: type[Encoding], file: Path, arguments: Mapping[str, Any], dims: Dims) -> None:
    """Raises UserError if the class in a user's file is wrong: with the file, the hook, and what was expected.

    The instances of the check are its own, since hooks may keep something from it. Does not change torch's random
    state.
    """
    _check_names(cls, file)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        layers: list[Encoding] = []
        for number in range(dims.layers):
            own = dataclasses.replace(dims, layer=number)
            layers.append(attempt(file, "__init__", partial(cls, own, **arguments)))
            _check_attributes(layers[-1], file, own)
            if number:
                attempt(file, "share", partial(layers[-1].share, layers[0]))
        move_from_constants(layers)
        length = min(LENGTH, dims.seq_len, *(layer.max_length or LENGTH for layer in layers))
        for encoding in layers:
            for training in (True, False):
                _check_returns(encoding.train(training), file, length)
            attempt(file, "begin_step", partial(encoding.begin_step, 0.5))
            attempt(file, "constrain", encoding.constrain)


def _check_names(cls: type[Encoding], file: Path) -> None:
    """Raises UserError if a method is not a hook, but its name is close to that of one that the class lacks."""
    inherited = specs.inherited_methods(cls)
    own = {name: value for one in cls.__mro__ if one.__module__ == cls.__module__ for name, value in vars(one).items()}
    missing = [hook for hook in HOOKS if hook not in own]
    for name, value in own.items():
        if name.startswith("_") or name in inherited or not callable(value):
            continue
        if near := difflib.get_close_matches(name, missing, n=1, cutoff=NEAR):
            raise UserError(
                f"{file}: {name} is no hook, and nothing calls it; did you mean '{near[0]}'? "
                f"Where it is a helper of your own, call it _{name}"
            )


def _check_attributes(encoding: Encoding, file: Path, dims: Dims) -> None:
    """Raises UserError if an instance does not keep its arguments, or has invalid attributes."""
    if not {"_parameters", "dims"} <= vars(encoding).keys():
        raise UserError(f"{file}: __init__ must begin with super().__init__(dims)")
    own = {*vars(encoding), *encoding._modules, *encoding._parameters, *encoding._buffers}
    for name, owner in specs.inherited_methods(type(encoding)).items():
        if name in own:
            raise UserError(f"{file}: self.{name} has the name of a method of {owner}: keep it under another name")
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
    again = attempt(file, "__init__", lambda: type(encoding)(dims, **arguments).arguments())
    for name, value in arguments.items():
        if not isinstance(value, int | float | str | None) or again[name] != value:
            raise UserError(
                f"{file}: self.{name} is {_what_is(value)}, which argument {name} was not: keep the argument as "
                f"self.{name}, and what is made of it under another name"
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


def _check_returns(encoding: Encoding, file: Path, length: int) -> None:
    """Raises UserError if a hook fails on random inputs, or does not return what RETURNS says."""
    dims = encoding.dims
    sizes = {"B": WINDOWS, "T": length, "S": length, "D": dims.width}
    sizes |= {"H": dims.heads, "G": dims.kv_heads, "K": dims.head_dim}
    q, k = (torch.randn(WINDOWS, count, length, dims.head_dim) for count in (dims.heads, dims.kv_heads))
    pos_T = torch.arange(length, dtype=torch.float32)
    given: dict[str, Any] = {"index_T": pos_T, "pos_T": pos_T, "pos_S": pos_T, "state": None, "context": None}
    given |= {"x_BTD": torch.randn(WINDOWS, length, dims.width), "q_BHTK": q, "k_BGSK": k, "k_BGTK": k, "v_BGTK": k}
    for hook, axes in RETURNS.items():
        if dims.layer and hook in ("positions", "embed"):
            continue  # only called in the first layer
        where = f"{hook} of layer {dims.layer}" if dims.layer else hook
        arguments = [given[name] for name in list(inspect.signature(getattr(Encoding, hook)).parameters)[1:]]
        found = attempt(file, where, partial(getattr(encoding, hook), *arguments))
        if axes and (wrong := _wrong(found, hook, axes, sizes, given["context"])):
            raise UserError(f"{file}: {where} {wrong}")
        if hook == "positions":
            given["pos_T"] = given["pos_S"] = found
        elif hook == "prepare":
            context = chunk_context(encoding, given["pos_T"], given["pos_S"], found, 0, length)
            given |= {"state": found, "context": context}
        elif hook == "rotate":
            if wrong := attempt(file, where, partial(_wrong_turns, encoding, q, k, given["pos_T"], given["state"])):
                raise UserError(f"{file}: {where} {wrong}")
            q, k = found
            given |= {"q_BHTK": q, "k_BGTK": k, "k_BHSK": k.repeat_interleave(dims.heads // dims.kv_heads, dim=1)}
        elif hook == "bias":
            bias = 0.0 if found is None else found
        elif hook == "scores":
            scores = scaled_product(q, given["k_BHSK"]) if found is None else found
            given["scores_BHTS"] = (scores + bias).masked_fill(context.hidden_TS, -math.inf)
    view = attempt(file, "extended", lambda: encoding.extended(Plan(window=1)))
    if not isinstance(view, Encoding):
        raise UserError(f"{file}: extended returned {_what_is(view)}; expected an encoding: self.copy_with(...)")


def _wrong_turns(encoding: Encoding, q_BHTK: Tensor, k_BGTK: Tensor, pos_T: Tensor, state: Any) -> str:
    """What is wrong if `rotate` turns some queries and keys otherwise than among all; empty if nothing is.

    If it mixes tokens, so that the content of those that are left out matters, nothing is known.
    """
    if state is not None or not encoding.accepts & {POSITIONS, DISTANCES}:
        return ""

    def products(q: Tensor, k: Tensor) -> Tensor:
        q, k = encoding.rotate(q, k, pos_T[-q.shape[2] :], pos_T[-k.shape[2] :], None)
        return q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT

    first, first_key = len(pos_T) // 3, len(pos_T) // 6  # fewer queries than keys
    among_all = products(q_BHTK, k_BGTK)[..., first:, first_key:]
    if not differ(products(q_BHTK[:, :, first:], k_BGTK[:, :, first_key:]), among_all):
        return ""
    others = (torch.cat([-x[:, :, :n], x[:, :, n:]], dim=2) for x, n in ((q_BHTK, first), (k_BGTK, first_key)))
    if differ(products(*others)[..., first:, first_key:], among_all):
        return ""
    return "turns tokens otherwise if those before them are left out: take positions from pos_T and pos_S, not a length"


def _wrong(found: Any, hook: str, axes: str, sizes: dict[str, int], context: Context | None) -> str:
    """What is wrong with what a hook returned; empty if nothing is."""
    shapes = [{axis: sizes[axis] for axis in one} for one in axes.rstrip("?").split()]
    if found is None and axes.endswith("?"):
        return ""
    if len(shapes) > 1 and not (isinstance(found, tuple | list) and len(found) == len(shapes)):
        return f"returned {_what_is(found)}; expected a tuple of {len(shapes)}: {' and '.join(map(_spell, shapes))}"
    values = found if len(shapes) > 1 else [found]
    if hook == "rotate" and len({value.shape[-1:] for value in values if isinstance(value, Tensor)}) == 1:
        shapes = [shape | {"K": values[0].shape[-1]} for shape in shapes]  # both may become wider
    for value, shape in zip(values, shapes, strict=True):
        if not isinstance(value, Tensor):
            return f"returned {_what_is(value)}; expected a tensor {_spell(shape)}"
        # A bias or scores may be broadcast over heads or windows.
        free = [axis for axis in shape if axis in "BH" and hook in ("bias", "scores")]
        wanted = [
            size if size == 1 and axis in free else own
            for size, (axis, own) in zip(value.shape, shape.items(), strict=False)
        ]
        if list(value.shape) != wanted or value.ndim != len(shape):
            more = f": {CONTENT}" if hook == "bias" and value.ndim == 4 else ""
            return f"returned {list(value.shape)}; expected {_spell(shape)}{more}"
        if value.dtype != torch.float32 and not (value.is_floating_point() and hook in ("scores", "weights")):
            return f"returned {str(value.dtype).removeprefix('torch.')}; expected float32"
        bad = ~value.isfinite()
        if hook in ("bias", "scores") and context is not None:  # -inf hides a key; attention hides later ones
            hidden = torch.zeros(()).masked_fill(context.hidden_TS, -math.inf)
            masked = value.masked_fill(context.hidden_TS, -math.inf) if hook == "bias" else value + hidden
            bad = masked.isnan() | (masked == math.inf)
            if (masked == -math.inf).all(dim=-1).any():
                return "hides every key of a query; expected a finite number for at least one"
        if bad.any():
            place = bad.nonzero()[0].tolist()
            at = ", ".join(f"{axis.lower()}={index}" for axis, index in zip(shape, place, strict=True))
            return f"returned {value[tuple(place)].item()} at {at}; expected finite numbers"
    return ""


def attempt(file: Path, hook: str, call: Callable[[], Any]) -> Any:
    """Calls the user's code. Anything that it raises becomes a UserError that names the hook."""

    def instead(error: BaseException) -> UserError:
        if hook == "__init__" and isinstance(error, ValueError):  # a refusal, in the user's own words
            return UserError(f"{file}: {error}")
        return UserError(f"{file}: {hook} failed: {described(error, file)}")

    return user_files.of_user(call, instead)


def _spell(shape: dict[str, int]) -> str:
    return "[" + ", ".join(f"{axis}={size}" for axis, size in shape.items()) + "]"


def _what_is(value: Any) -> str:
    """A value in words: `None`, `a tensor [2, 64]`, `a tuple of 3`."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value) if isinstance(value, int | float | str | None) else f"of type {type(value).__name__}"


def differ(some: Tensor, others: Tensor) -> bool:
    """Whether two tensors differ by more than rounding; -inf equals itself."""
    largest = torch.where(others.isfinite(), others, 0.0).abs().amax()
    return not bool(((some == others) | ((some - others).abs() <= TOLERANCE * largest)).all())


# In the order of the forward pass, except `bias`, whose absence says the least.
_BLAMED = ("embed", "attention_input", "rotate", "scores", "bias", "weights", "mix", "positions")


def culprit(model: Decoder, fault: Callable[[], object]) -> str:
    """The hook without which there is no fault, in the words of a message; `the encoding` if it is not a single one."""
    for hook in _BLAMED:
        changed = [encoding for encoding in model.encodings if _overrides(encoding, hook)]
        for encoding in changed:
            vars(encoding)[hook] = getattr(Encoding, hook).__get__(encoding)
        try:
            better = bool(changed) and not fault()
        except Exception:  # other hooks may depend on this one
            better = False
        finally:
            for encoding in changed:
                del vars(encoding)[hook]
        if better:
            reads = any(_overrides(encoding, "prepare") for encoding in model.encodings)
            return f"{hook}, or prepare," if hook in ("rotate", "scores", "mix") and reads else hook
    return "the encoding"


def _overrides(encoding: Encoding, hook: str) -> bool:
    return getattr(type(encoding), hook) is not getattr(Encoding, hook)
