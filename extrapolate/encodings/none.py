"""NoPE: no positional encoding."""

from extrapolate.encodings.base import LOGITS, MASK, Encoding, register


@register("none")
class NoPE(Encoding):
    """No encoding: only the causal mask tells the order.

    Query i attends to keys 0..i, so its softmax runs over i + 1 keys, from which the model can learn to read its
    position.
    Beyond L: the number of keys keeps growing, and with it the entropy of attention, so the loss drifts upward,
    starting between about 1.2 and 2 times L.

    Sources: Haviv et al., arXiv 2203.16634; Kazemnejad et al., arXiv 2305.19466.
    """

    display = "NoPE"
    source = "arXiv 2305.19466"
    family = "absolute"
    accepts = frozenset({MASK, LOGITS})
    positional = False
