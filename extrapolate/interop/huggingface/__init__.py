"""Reads checkpoints of Hugging Face without `transformers`.

Refuses what the decoder cannot reproduce exactly, and names the field that requires it.
"""

from extrapolate.interop.huggingface.rotary import Rotary as Rotary
from extrapolate.interop.huggingface.rotary import rotary_of as rotary_of
from extrapolate.interop.huggingface.source import Source as Source
from extrapolate.interop.huggingface.source import find as find
from extrapolate.interop.huggingface.source import sizes_of as sizes_of
from extrapolate.interop.huggingface.weights import weights_of as weights_of
