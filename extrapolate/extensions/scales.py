"""Sharper or softer attention."""

import math

from extrapolate.encodings.base import LOGITS, Encoding
from extrapolate.encodings.plan import UNROTATED, Plan
from extrapolate.errors import UserError
from extrapolate.extensions.base import SCALE, Extension, register
from extrapolate.extensions.windows import check_at_least


@register("log-n")
class LogN(Extension):
    """Multiplies the scores of query i by max(1, ln(i + 1) / ln L), with i its true index.

    Over more keys than in training, attention spreads out; this sharpens it again, including an encoding's bias.
    Queries within L are left alone, unless there is an offset.

    Arguments: offset, a number of tokens a (default: none): the factor is ln(i + a) / ln a instead, for all queries and
    lengths. HyPE does this at inference only, with a = 500, after training at 512 and then at 16k tokens.
    Source: Su, kexue.fm 8823 (2021); Chiang and Cholak, arXiv 2202.12172; Qwen's "logn_attn"; HyPE, arXiv 2601.22156.
    """

    display = "log-n"
    clashes_with_ssmax = True
    source = "arXiv 2202.12172"
    slot = SCALE
    needs = LOGITS

    def __init__(self, *, offset: int | None = None) -> None:
        if offset is not None and offset < 2:
            raise UserError(f"log-n: offset must be at least 2 tokens, not {offset}")
        self.offset = offset

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        if self.offset is not None:
            return Plan(log_offset=self.offset)
        return Plan(log_length=seq_len if length > seq_len else None)


@register("llama4")
class Llama4(Extension):
    """Multiplies the scores of query i by 1 + c ln(1 + floor((i + 1) / F)), but only in layers without rotation.

    Llama 4's layers without positions see everything, and attention in them spreads out as a text grows; this sharpens
    it again, step by step. Layers that rotate queries and keys are left alone, and so are queries before F - 1. The
    authors train with it; here it is applied to a trained model.

    Arguments: c, a number; size, F in tokens (default L; Llama 4 has 8192).
    Source: the released code of Llama 4, in transformers' modeling_llama4.py (2025).
    """

    display = "Llama 4"
    clashes_with_ssmax = True
    source = "modeling_llama4.py"
    slot = SCALE
    needs = LOGITS
    for_layers = UNROTATED

    def __init__(self, *, c: float = 0.1, size: int | None = None) -> None:
        check_at_least("llama4", "size", size, 1)
        if c < 0:
            raise UserError(f"llama4: c must not be negative, not {c:g}")
        self.c = c
        self.size = size

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        size = seq_len if self.size is None else self.size
        return Plan(log_steps=(self.c, size) if length >= size and self.c else None)


@register("temperature")
class Temperature(Extension):
    """Multiplies every score by 1 + c ln s, s = N/L, with a constant c fitted to held-out text.

    Windows of at most L tokens are left alone. If c is not given, it is fitted for each length to the loss of the
    validation split, between -0.5 and 1 and such that no score changes its sign.

    Arguments: c, a number (default: fitted; DroPE's authors report 0.412 for a model trained from scratch).
    Sources: arXiv 2404.12224; DroPE, arXiv 2512.12167.
    """

    display = "Temperature"
    example = "c=0.4"
    source = "arXiv 2404.12224"
    slot = SCALE
    needs = LOGITS

    def __init__(self, *, c: float | None = None) -> None:
        self.c = c

    def unfitted(self) -> bool:
        return self.c is None

    def fitted(self, value: float) -> "Temperature":
        return Temperature(c=value)

    def plan(self, encoding: Encoding, seq_len: int, length: int) -> Plan:
        assert self.c is not None, "it is fitted first"
        scale = 1.0 + self.c * math.log(max(1.0, length / seq_len))
        if scale <= 0:
            raise UserError(f"temperature: c={self.c:g} makes the scores' factor {scale:g} at {length} tokens")
        return Plan(logit_scale=scale)
