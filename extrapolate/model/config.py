"""The model's sizes."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from extrapolate.errors import UserError, about
from extrapolate.specs.settings import Count, Flag, Section

MOST_LAYERS = 10_000  # ten times more than any decoder; keeps a list of a model's tensors short
_flag = partial(Flag, panel="Model")
# Settings that a model's label names if they are not the default.
COMBINED = {
    "ssmax": "SSMax", "qk_norm": "QK-norm", "qkv_bias": "QKV-bias", "sinks": "sinks", "output_gate": "output-gate",
    "differential": "differential", "canon": "Canon", "activation": "GELU", "post_norms": "post-norms",
}  # fmt: skip


class ModelConfig(Section):
    """Sizes of the Llama decoder: widths in channels, dropout a probability on the residual stream's inputs.

    Other settings combine with any encoding. ssmax multiplies the scores of query i by s ln(i + 1), with s learned
    (arXiv 2501.19399). qk_norm normalises queries and keys per head before the encoding rotates them. qkv_bias adds a
    learned vector, 0 at first, to queries, keys and values, as Qwen's models do to reach longer texts (arXiv
    2309.16609). sinks adds one learned score per head to every softmax, and drops the weight that it gets, as gpt-oss
    does (arXiv 2508.10925); no scale of scores changes it. output_gate multiplies the output of each head, channel
    by channel, by the sigmoid of a projection of attention's input (arXiv 2505.06708). differential gives each head a
    second query, and subtracts its output, times the sigmoid of a projection, from that of the first, as the second
    version of Microsoft's differential transformer does. canon adds causal convolutions of 4 tokens, all
    four Canon layers of a block (arXiv 2512.17351). activation is that of the feed-forward gate: silu, or gelu_tanh,
    the tanh approximation of GELU. post_norms normalises the outputs of attention and feed-forward, as Gemma 2 does
    (arXiv 2408.00118).

    `model.size` checks that a model fits into this machine's memory before one is built.
    """

    vocab_size: Count = Field(description="tokens that the model embeds")
    layers: Annotated[int, _flag("number of blocks, in place of the preset's")] = Field(4, gt=0, le=MOST_LAYERS)
    width: Annotated[Count, _flag("channels D of the residual stream, in place of the preset's")] = 128
    heads: Annotated[Count, _flag("heads of attention, of D / heads channels each")] = 4
    kv_heads: Count = Field(4, description="heads of keys and values")
    head_dim: Count = Field(32, description="channels of a head")
    ff_width: Count = Field(384, description="channels of the feed-forward")
    tied_embeddings: bool = Field(False, description="whether input and output share their embeddings")
    dropout: float = Field(0.0, ge=0, lt=1, description="probability of dropout on the residual stream's inputs")
    norm_eps: float = Field(1e-5, gt=0, le=1, description="what RMSNorm adds to the mean square")
    ssmax: Annotated[bool, _flag("multiply the scores of query i by s ln(i + 1)")] = False
    qk_norm: Annotated[bool, _flag("normalise queries and keys per head")] = False
    qkv_bias: Annotated[bool, _flag("biases of queries, keys and values")] = False
    sinks: Annotated[bool, _flag("a learned sink in the softmax of each head")] = False
    output_gate: Annotated[bool, _flag("a learned gate on the output of each head")] = False
    differential: Annotated[bool, _flag("a second query per head, whose attention is subtracted")] = False
    canon: Annotated[bool, _flag("causal convolutions of 4 tokens at four places of each block")] = False
    activation: Literal["silu", "gelu_tanh"] = Field("silu", description="activation of the feed-forward's gate")
    post_norms: bool = Field(False, description="whether the outputs of attention and feed-forward are normalised")

    def combined(self) -> list[str]:
        """The settings combined with the encoding, as labels show them."""
        return [label for name, label in COMBINED.items() if getattr(self, name) != self.usual(name)]

    @classmethod
    def usual(cls, name: str) -> Any:
        """A setting's default."""
        return cls.model_fields[name].default

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        with about("kv_heads"):
            if self.heads % self.kv_heads:
                raise UserError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        return self
