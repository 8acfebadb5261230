"""Made by `make docs` from the fields of settings, for editors and type checkers: what calls take."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from extrapolate.api.own_class import ExtensionClass
    from extrapolate.data.store import Store


class TrainingArguments(TypedDict, total=False):
    """Of `xt.train`."""

    seq_len: int | None
    tokens: int | None
    batch_tokens: int | None
    optimizer: Literal["muon", "adamw"] | None
    lr: float | None
    seed: int | None
    device: Literal["auto", "cpu", "cuda"] | None
    precision: Literal["auto", "fp32", "bf16"] | None
    compile: bool | None
    probes: str | None
    layers: int | None
    width: int | None
    heads: int | None
    ssmax: bool | None
    qk_norm: bool | None
    qkv_bias: bool | None
    sinks: bool | None
    output_gate: bool | None
    differential: bool | None
    canon: bool | None


class TextArguments(TypedDict, total=False):
    """Of `xt.evaluate`."""

    factors: float | Sequence[float]
    extend: "str | ExtensionClass | Sequence[str | ExtensionClass]"
    split: str
    checkpoint: Literal["last", "all", "half"]
    precisions: str | Sequence[str]
    protocols: str | Sequence[str]
    stride: int | None
    bos: bool
    max_targets: int | Mapping[str, int] | None
    keep_losses: bool
    seq_len: int | None
    trust_code: bool
    device: Literal["auto", "cpu", "cuda"]
    data: "str | Path | Store | None"


class ProbeArguments(TypedDict, total=False):
    """Of `xt.evaluate_probes`."""

    factors: float | Sequence[float]
    extend: "str | ExtensionClass | Sequence[str | ExtensionClass]"
    split: str
    checkpoint: Literal["last", "all", "half"]
    precisions: str | Sequence[str]
    seq_len: int | None
    trust_code: bool
    device: Literal["auto", "cpu", "cuda"]
    data: "str | Path | Store | None"


class InspectionArguments(TypedDict, total=False):
    """Of `xt.inspect`."""

    factors: float | Sequence[float]
    extend: "str | ExtensionClass | Sequence[str | ExtensionClass]"
    split: str
    measures: str | Sequence[str]
    windows: int | None
    seq_len: int | None
    trust_code: bool
    device: Literal["auto", "cpu", "cuda"]
    data: "str | Path | Store | None"


class RowArguments(TypedDict, total=False):
    """Of `xt.report`."""

    seq_len: int | None
    corpus: str | None
    precision: str | None
    split: str | None


class OpeningArguments(TypedDict, total=False):
    """Of `xt.evaluate_tasks`."""

    seq_len: int | None
    trust_code: bool
    device: Literal["auto", "cpu", "cuda"]
