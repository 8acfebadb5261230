"""FoX, the forgetting transformer, and CABLE."""

from typing import Literal

from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, Context, Dims, Encoding, register, scaled_product


@register("fox")
class FoX(Encoding):
    """Lets every token decide, for each head, how much of the preceding context to forget.

    The gate is f_t = sigmoid(w_h x_t + b_h), with x the layer's attention input, and the score of query i and key j
    gains ln f_(j+1) + ... + ln f_i, summed in float32. Queries and keys are not rotated. Only the forget gate is
    implemented, not the other parts of the paper's Pro block. Beyond L: the decay depends on content, so no position
    can leave a trained range.

    CABLE is the same bias with w and b negated, but its released code does not divide the product by sqrt(K). Form
    "cable" leaves this division out. Arguments: form, "fox" or "cable"; gate_bias, the initial value of b (default 0,
    as in the official code, so that half is forgotten at each token at first; other implementations start at 5).
    Sources: Lin et al., arXiv 2503.02130; CABLE: arXiv 2503.08067.
    """

    display = "FoX"
    source = "arXiv 2503.02130"
    family = "content-dependent"
    accepts = frozenset({LOGITS})
    positional = False

    def __init__(self, dims: Dims, *, form: Literal["fox", "cable"] = "fox", gate_bias: float = 0.0) -> None:
        super().__init__(dims)
        self.form = form
        self.gate_bias = gate_bias
        self.gate = nn.Linear(dims.width, dims.heads)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.constant_(self.gate.bias, gate_bias)

    def prepare(self, x_BTD: Tensor) -> Tensor:
        """The sum of ln f over the tokens up to each, [B, H, T], float32."""
        return nn.functional.logsigmoid(self.gate(x_BTD).float()).cumsum(dim=1).transpose(1, 2)

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        sum_BHT = context.state
        decay_BHTS = sum_BHT[:, :, context.queries, None] - sum_BHT[:, :, None, context.keys]
        if self.form == "cable":
            return (q_BHTK @ k_BHSK.transpose(-1, -2)).float() + decay_BHTS
        return scaled_product(q_BHTK, k_BHSK) + decay_BHTS
