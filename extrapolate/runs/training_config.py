"""How a model is trained."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from extrapolate.errors import UserError, about
from extrapolate.names import LEFT_OUT, LONGEST
from extrapolate.specs.settings import Count, Flag, Section

RATES = {"muon": 0.02, "adamw": 3e-3}  # learning rates if none is given
_training, _machine = partial(Flag, panel="Training"), partial(Flag, panel="Machine")


class TrainingConfig(Section):
    """The budget and the optimiser. Lengths, budgets and batches are in tokens; betas and rates are AdamW's.

    probes: the share of windows with each probe, `mqar=0.25,passkey=0.25`; None if all windows are text.
    """

    seq_len: Annotated[int, Flag("training length L, tokens", "Model")] = Field(gt=1, le=LONGEST)
    tokens: Annotated[Count, _training("training budget, tokens")] = 1_000_000
    batch_tokens: Annotated[Count, _training("tokens in one step")] = 2048
    micro_batch_tokens: Count = 4096
    optimizer: Annotated[
        Literal["muon", "adamw"],
        _training("muon (for the blocks' matrices) or adamw (for all)", usual="the preset's"),
    ] = "muon"
    lr: Annotated[float, _training("peak learning rate", usual="the preset's, or the optimiser's")] = Field(
        RATES["muon"], gt=0, le=1e30
    )  # as float32 has it
    min_lr_ratio: float = Field(0.0, ge=0, le=1)
    warmup_ratio: float = Field(0.05, ge=0, le=1)
    weight_decay: float = Field(0.1, ge=0, le=1e6)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.95, ge=0, lt=1)
    clip: float = Field(1.0, gt=0)
    seed: Annotated[int, _training("seed of weights, order and dropout", usual="0")] = Field(
        0,
        ge=0,
        lt=2**64,  # as torch takes seeds
    )
    device: Annotated[
        Literal["cpu", "cuda"], _machine("auto: a GPU if any", auto=True, envvar="EXTRAPOLATE_DEVICE")
    ] = "cpu"
    precision: Annotated[Literal["fp32", "bf16"], _machine("auto: bf16 if the hardware supports it", auto=True)] = (
        "fp32"
    )
    compile: Annotated[
        bool,
        _machine("use torch.compile", off=True, usual="if the run is long enough"),
    ] = False
    probes: Annotated[
        str | None,
        Flag("share of windows per probe, such as passkey=0.25,mqar=0.25 ({probes}); off: text alone", "Data"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _what_others_decide(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        asked = values.get("optimizer", "muon")
        usual: dict[str, Any] = {"lr": RATES[asked]} if isinstance(asked, str) and asked in RATES else {}
        if isinstance(length := values.get("seq_len"), int):
            usual["batch_tokens"] = max(cls.model_fields["batch_tokens"].default, length)
        return usual | values

    @field_validator("probes")
    @classmethod
    def _one_text_for_one_mixture(cls, probes: str | None) -> str | None:
        from extrapolate.data.mixture import Mixture  # imports numpy, and the command line reads the fields above

        return None if probes is None or probes.strip() == LEFT_OUT else Mixture.parse(probes).text

    @model_validator(mode="after")
    def _check(self) -> "TrainingConfig":
        with about("batch_tokens"):
            if self.batch_tokens < self.seq_len:
                found = f"`batch_tokens={self.batch_tokens}` holds no window of {self.seq_len}"
                raise UserError(f"{found}: give at least {self.seq_len}")
        with about("tokens"):
            if self.tokens < (batch := self.batch_size * self.seq_len):
                raise UserError(f"`tokens={self.tokens}` is less than one batch: give at least {batch}")
        return self

    @property
    def batch_size(self) -> int:
        """Windows in a step."""
        return self.batch_tokens // self.seq_len

    @property
    def micro_batch_size(self) -> int:
        """Windows in a forward pass; a step adds up the gradients of several passes."""
        return max(1, min(self.micro_batch_tokens // self.seq_len, self.batch_size))

    @property
    def steps(self) -> int:
        """Optimiser steps within the budget."""
        return self.tokens // (self.batch_size * self.seq_len)
