"""Made by `make docs` from the fields of ModelConfig and TrainingConfig, for editors and type checkers."""

from typing import Literal, TypedDict


class TrainingSettings(TypedDict, total=False):
    """The settings of a model and its training that `xt.train` takes."""

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
