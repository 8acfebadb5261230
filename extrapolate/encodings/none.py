"""NoPE: no positional encoding."""

from extrapolate.encodings.base import LOGITS, MASK, Encoding, register


@register("none")
class NoPE(Encoding):
    """Nothing: the causal mask alone tells order.

    Query i attends to keys 0..i, so its softmax runs over i + 1 keys and the model can learn to read its own
    position from that.
    Beyond L: the number of keys, and so the entropy of attention, keeps growing: the loss drifts upward from about
    1.2 to 2 times L.

    Sources: Haviv et al., arXiv 2203.16634; Kazemnejad et al., arXiv 2305.19466.
    """

    display = "NoPE"
    source = "arXiv 2305.19466"
    family = "absolute"
    accepts = frozenset({MASK, LOGITS})
    positional = False
