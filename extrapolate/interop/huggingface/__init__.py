"""Checkpoints as Hugging Face has them, in this project's terms. `transformers` is not needed.

What the decoder cannot reproduce exactly is refused, by the name of the field that asks for it.
"""

from extrapolate.interop.huggingface.rotary import Rotary as Rotary
from extrapolate.interop.huggingface.rotary import rotary_of as rotary_of
from extrapolate.interop.huggingface.source import Source as Source
from extrapolate.interop.huggingface.source import find as find
from extrapolate.interop.huggingface.source import sizes_of as sizes_of
from extrapolate.interop.huggingface.weights import weights_of as weights_of
