"""The model's sizes."""

from pydantic import Field, model_validator

from extrapolate.sections import Section


class ModelConfig(Section):
    """Sizes of the Llama decoder: widths in channels, dropout a probability on the residual stream's inputs.

    ssmax multiplies the scores of query i by s ln(i + 1), with s learned (arXiv 2501.19399); qk_norm normalises
    queries and keys per head before the encoding rotates them. Both combine with any encoding.
    """

    vocab_size: int = Field(gt=0)
    width: int = Field(128, gt=0)
    layers: int = Field(4, gt=0)
    heads: int = Field(4, gt=0)
    kv_heads: int = Field(4, gt=0)
    head_dim: int = Field(32, gt=0)
    ff_width: int = Field(384, gt=0)
    tied_embeddings: bool = False
    dropout: float = Field(0.0, ge=0, lt=1)
    norm_eps: float = Field(1e-5, gt=0)
    ssmax: bool = False
    qk_norm: bool = False

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        return self
