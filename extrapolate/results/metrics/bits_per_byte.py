"""Bits per byte."""

import math

from extrapolate.results.metrics.base import Metric, Scored, metrics


@metrics.register("bits_per_byte")
class BitsPerByte(Metric):
    """The sum of the losses, in bits, divided by the bytes of text that the targets stand for."""

    unit = "bits"
    meaning = "The loss per byte of text, in bits: comparable between tokenizers."
    empty = "the targets have no bytes, or the tokenizer is lossy: decoding does not restore the text"

    @staticmethod
    def of(scored: Scored) -> float | None:
        n_bytes = float(scored.bytes_N.sum())
        return scored.total / math.log(2) / n_bytes if n_bytes > 0 else None
