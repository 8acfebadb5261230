"""Calls an encoding's hooks, and checks what they return: its form, type and numbers.

Shapes: as in encodings/base.py.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from extrapolate.encodings.base import Context, Encoding, Spectrum
from extrapolate.encodings.plan import Plan
from extrapolate.errors import UserError
from extrapolate.specs import user_files
from extrapolate.specs.user_files import described

CONTENT = "what depends on content belongs in `scores`, with `context.state`"


class Asked:
    """Wraps an encoding: its methods call the hooks of the same names, and check every result.

    They raise UserError if a hook fails, or returns a wrong form or type, or numbers that are not finite. Messages
    contain `file`, `layer` and `case`, which describes the call.
    """

    def __init__(self, encoding: Encoding, file: Path, layer: int = 0, case: str = "") -> None:
        self.encoding, self.file, self.layer, self.case = encoding, file, layer, case

    def but(self, encoding: Encoding | None = None, case: str = "") -> "Asked":
        """The same for another case, or for a view of the encoding."""
        return Asked(self.encoding if encoding is None else encoding, self.file, self.layer, case)

    def wrong(self, hook: str, what: str) -> UserError:
        """The error about a hook."""
        layer = f" of layer {self.layer}" if self.layer else ""
        return UserError(f"{self.file}: {hook}{layer} {what}{self.case}")

    def positions(self, index_T: Tensor) -> Tensor:
        return self._tensor("positions", self.call("positions", index_T), {"T": len(index_T)}, torch.float32)

    def embed(self, x_BTD: Tensor, pos_T: Tensor) -> Tensor:
        return self._tensor("embed", self.call("embed", x_BTD, pos_T), _sizes("BTD", x_BTD), x_BTD.dtype)

    def attention_input(self, x_BTD: Tensor, pos_T: Tensor) -> tuple[Tensor, Tensor]:
        sizes = _sizes("BTD", x_BTD)
        pair = self._pair(
            "attention_input", f"what W_q and W_k read, and what W_v reads, each {_spell(sizes)}", x_BTD, pos_T
        )
        read, value = (self._tensor("attention_input", part, sizes, x_BTD.dtype) for part in pair)
        return read, value

    def prepare(self, x_BTD: Tensor) -> Any:
        return self.call("prepare", x_BTD)

    def rotate(
        self, q_BHTK: Tensor, k_BGSK: Tensor, pos_T: Tensor, pos_S: Tensor, state: Any = None
    ) -> tuple[Tensor, Tensor]:
        sizes = (_sizes("BHTK", q_BHTK), _sizes("BGSK", k_BGSK))
        pair = self._pair(
            "rotate", f"queries {_spell(sizes[0])} and keys {_spell(sizes[1])}", q_BHTK, k_BGSK, pos_T, pos_S, state
        )
        if all(isinstance(part, Tensor) and part.ndim == 4 for part in pair):
            if pair[0].shape[-1] != pair[1].shape[-1]:
                raise self.wrong(
                    "rotate",
                    f"returned queries {list(pair[0].shape)} and keys {list(pair[1].shape)}; expected both as wide",
                )
            for size in sizes:
                size["K"] = pair[0].shape[-1]  # they may become wider
        q, k = (self._tensor("rotate", part, size, q_BHTK.dtype) for part, size in zip(pair, sizes, strict=True))
        return q, k

    def bias(self, context: Context) -> Tensor | None:
        bias_HTS = self.call("bias", context.pos_T, context.pos_S)
        if bias_HTS is None:
            return None
        sizes = {"H": self.encoding.dims.heads} | _sizes("TS", context.hidden_TS)
        self._tensor("bias", bias_HTS, sizes, torch.float32, finite=False)
        self._seen_numbers("bias", bias_HTS.masked_fill(context.hidden_TS, -math.inf), sizes)
        return bias_HTS

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor | None:
        scores_BHTS = self.call("scores", q_BHTK, k_BHSK, context)
        if scores_BHTS is None:
            return None
        sizes = _sizes("BHT", q_BHTK) | {"S": k_BHSK.shape[2]}
        self._tensor("scores", scores_BHTS, sizes, None, finite=False)
        # Attention adds -inf for hidden keys, which hides any number except nan and inf.
        self._seen_numbers("scores", scores_BHTS + torch.zeros(()).masked_fill(context.hidden_TS, -math.inf), sizes)
        return scores_BHTS

    def weights(self, scores_BHTS: Tensor, context: Context) -> Tensor | None:
        weight_BHTS = self.call("weights", scores_BHTS, context)
        if weight_BHTS is None:
            return None
        sizes = _sizes("BHTS", scores_BHTS)
        self._tensor("weights", weight_BHTS, sizes, None)
        if (weight_BHTS.masked_fill(~context.hidden_TS, 0.0) != 0).any():
            raise self.wrong("weights", "gives hidden keys, whose score is -inf, a weight; expected 0")
        return weight_BHTS

    def mix(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, state: Any) -> Tensor | None:
        mixed_BHTK = self.call("mix", q_BHTK, k_BGTK, v_BGTK, state)
        if mixed_BHTK is None:
            return None
        sizes = _sizes("BHT", q_BHTK) | {"K": v_BGTK.shape[-1]}
        return self._tensor("mix", mixed_BHTK, sizes, q_BHTK.dtype)

    def extended(self, plan: Plan, case: str) -> "Asked":
        """The encoding as a plan changes it."""
        view = self.call("extended", plan)
        if not isinstance(view, Encoding):
            raise self.wrong("extended", f"returned {what_is(view)}; expected an encoding, made with self.view(...)")
        return self.but(view, case)

    def spectrum(self) -> Spectrum:
        spectrum = self.call("spectrum")
        if not isinstance(spectrum, Spectrum):
            raise self.wrong(
                "spectrum",
                f"returned {what_is(spectrum)}; expected Spectrum(theta, count), for accepts has FREQUENCIES",
            )
        return spectrum

    def call(self, hook: str, *arguments: Any) -> Any:
        """What a hook returns, unchecked."""
        return attempt(self.file, hook, lambda: getattr(self.encoding, hook)(*arguments), self.wrong)

    def _pair(self, hook: str, expected: str, *arguments: Any) -> tuple[Any, Any]:
        pair = self.call(hook, *arguments)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise self.wrong(hook, f"returned {what_is(pair)}; expected a tuple of 2: {expected}")
        return pair[0], pair[1]

    def _tensor(
        self, hook: str, value: Any, sizes: Mapping[str, int], dtype: torch.dtype | None, finite: bool = True
    ) -> Tensor:
        if not isinstance(value, Tensor):
            raise self.wrong(hook, f"returned {what_is(value)}; expected a tensor {_spell(sizes)}")
        wanted = tuple(sizes.values())
        # A bias or scores may be broadcast over heads or windows.
        free = tuple(1 if axis in "BH" and not finite else size for axis, size in sizes.items())
        fits = value.ndim == len(wanted) and all(n in pair for n, *pair in zip(value.shape, wanted, free, strict=True))
        if not fits:
            more = f": {CONTENT}" if hook == "bias" and value.ndim == 4 else ""
            raise self.wrong(hook, f"returned {list(value.shape)}; expected {_spell(sizes)}{more}")
        if value.dtype != dtype and (dtype is not None or not value.is_floating_point()):
            kind = "a floating-point type" if dtype is None else str(dtype).removeprefix("torch.")
            raise self.wrong(hook, f"returned {str(value.dtype).removeprefix('torch.')}; expected {kind}")
        if finite and not value.isfinite().all():
            raise self._not_finite(hook, value, ~value.isfinite(), sizes)
        return value

    def _seen_numbers(self, hook: str, masked: Tensor, sizes: Mapping[str, int]) -> None:
        """Allows -inf, which hides a key, as long as every query sees one."""
        bad = masked.isnan() | (masked == math.inf)
        if bad.any():
            raise self._not_finite(hook, masked, bad, sizes)
        if (masked == -math.inf).all(dim=-1).any():
            raise self.wrong(hook, "hides every key of a query; expected a finite number for at least one")

    def _not_finite(self, hook: str, value: Tensor, bad: Tensor, sizes: Mapping[str, int]) -> UserError:
        place = bad.nonzero()[0].tolist()
        where = ", ".join(f"{axis.lower()}={index}" for axis, index in zip(sizes, place, strict=True))
        return self.wrong(hook, f"returned {value[tuple(place)].item()} at {where}; expected finite numbers")


def attempt(
    file: Path, hook: str, call: Callable[[], Any], wrong: Callable[[str, str], UserError] | None = None
) -> Any:
    """Calls the user's code. Anything that it raises becomes a UserError that names the hook."""

    def instead(error: BaseException) -> UserError:
        if hook == "__init__" and isinstance(error, ValueError):  # a refusal, in the user's own words
            return UserError(f"{file}: {error}")
        what = f"failed: {described(error, file)}"
        return wrong(hook, what) if wrong else UserError(f"{file}: {hook} {what}")

    return user_files.of_user(call, instead)


def _sizes(axes: str, tensor: Tensor) -> dict[str, int]:
    return dict(zip(axes, tensor.shape, strict=False))


def _spell(sizes: Mapping[str, int]) -> str:
    return "[" + ", ".join(f"{axis}={size}" for axis, size in sizes.items()) + "]"


def what_is(value: Any) -> str:
    """A value in words: `None`, `a tensor [2, 64]`, `a tuple of 3`."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value) if isinstance(value, int | float | str | None) else f"of type {type(value).__name__}"
