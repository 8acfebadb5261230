"""Different encodings in different layers."""

import dataclasses
import itertools
from typing import Any, Self

import torch

from extrapolate import specs
from extrapolate.encodings.base import FREQUENCIES, POSITIONS, Dims, Encoding, Spectrum, register
from extrapolate.encodings.plan import Plan
from extrapolate.encodings.wrapper import Wrapper, made
from extrapolate.errors import UserError


@register("pattern")
class Pattern(Wrapper):
    """Gives layers different encodings in turn, such as three layers with a recurrence and one with attention.

    Layer l, counted from 0, has encoding l mod n of the n in the list, with its parameters; layers with the same one
    share what its paper shares. One that adds to the embedding or chooses positions must be the first. Extensions apply
    if all layers with attention accept them, and change nothing in the others; those of positions also must suit a
    recurrence that reads positions, and those of frequencies need one spectrum.
    Beyond L: each layer does as its encoding does. Windows end at the shortest that any of them is defined for.

    Arguments: layers, specs with commas between them, each in parentheses if it has arguments, as in
    pattern:layers=(kda,kda,(rope:theta=500000)); default: kda in all of four layers (or of all, if there are fewer) but
    the last, which has none, as in Kimi Linear.
    Source: Kimi Linear, arXiv 2510.26692.
    """

    display = "Pattern"
    source = "arXiv 2510.26692"

    def __init__(self, dims: Dims, *, layers: str | None = None) -> None:
        few = min(4, dims.layers)
        usual = ["kda"] * max(1, few - 1) + ["none"] * (few > 1)
        texts = usual if layers is None else specs.split_outside_parentheses(layers, ",")
        if not 1 <= len(texts) <= dims.layers:
            raise UserError(f"pattern: layers must name between 1 and {dims.layers} encodings, not {len(texts)}")
        texts = [specs.unwrapped(text.strip()) for text in texts]
        turn = dims.layer % len(texts)
        super().__init__(dims, texts[turn])
        named = [made(text, dataclasses.replace(dims, layer=0)) for text in texts]  # each as in the first layer
        members = [member for _, member in named]
        spelled = [specs.spell(name, member.arguments()) for name, member in named]
        for text, member in zip(spelled, members, strict=True):
            if text != spelled[0] and _enters_first(member):
                raise UserError(f"pattern: {member.label()} changes what the first layer reads: it must be the first")
        self.layers = _listed(spelled)
        self.unusual_layers = _listed([specs.spell(name, member.unusual_arguments()) for name, member in named])
        self.member_labels = [member.label() for member in members]
        self.firsts = {self.base: self.inner}  # in the first layer: by spec, the first instance
        self._join(members)

    def _join(self, members: list[Encoding]) -> None:
        """Sets what all layers have in common."""
        attending = [member for member in members if member.attends()]
        spectra = [member.spectrum() for member in attending]
        self._spectrum = spectra[0] if spectra else None
        self.accepts = frozenset.intersection(*(member.accepts for member in attending)) if attending else frozenset()
        if any(spectrum != self._spectrum for spectrum in spectra):
            self.accepts -= {FREQUENCIES}
        if any(member.positional and POSITIONS not in member.accepts for member in members if member not in attending):
            self.accepts -= {POSITIONS}
        self.positional = any(member.positional for member in members)
        self.caption = " ".join(dict.fromkeys(member.caption for member in members if member.caption))
        self.rescales = frozenset().union(*(member.rescales for member in members))
        ends = [member.max_length for member in members if member.max_length is not None]
        self.max_length = min(ends) if ends else None

    def label(self) -> str:
        runs = ((label, len(list(run))) for label, run in itertools.groupby(self.member_labels))
        return " : ".join(f"{count} {label}" for label, count in runs)

    def unusual_arguments(self) -> dict[str, Any]:
        return dict.fromkeys(super().unusual_arguments(), self.unusual_layers)

    def share(self, first_layer: Self) -> None:
        first = first_layer.firsts.setdefault(self.base, self.inner)
        if first is not self.inner:
            self.inner.share(first)

    def spectrum(self) -> Spectrum | None:
        return self._spectrum

    def extended(self, plan: Plan) -> Self:
        return super().extended(plan) if self.attends() else self

    def defined_at(self, length: int, plan: Plan) -> bool:
        return self.inner.defined_at(length, plan)


def _listed(texts: list[str]) -> str:
    return ",".join(f"({text})" if ":" in text else text for text in texts)


def _enters_first(encoding: Encoding) -> bool:
    """Whether it overrides a hook that is only called on the first layer's instance."""
    index_T, x_BTD = torch.arange(1.0), torch.zeros(1, 1, encoding.dims.width)
    return encoding.positions(index_T) is not index_T or encoding.embed(x_BTD, index_T) is not x_BTD
