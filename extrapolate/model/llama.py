"""The Llama decoder, readable top to bottom.

Shapes: B batch, T tokens, D width, H heads, G key and value heads, K head dim, C = H K channels, F feed-forward
width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extrapolate.encodings.base import EMBEDDED, Encoding, Storage
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.model.attention import Observer, ResolvedPlan, Scoring, attend
from extrapolate.model.branches import attend_branches, branches_of
from extrapolate.model.canon import FEED_FORWARD_SIGHT, Canon
from extrapolate.model.dropout import Dropout

if TYPE_CHECKING:
    from extrapolate.model.config import ModelConfig

# Initial sizes of a block's matrices, and of what makes logits. See docs/training.md for how they were chosen.
GAIN, SMALL = 0.25, 0.02


class Cache(Protocol):
    """What attention keeps of earlier tokens when a model continues a text token by token.

    Keys are kept as projected, before any rotation: an encoding may change the positions of earlier tokens as the text
    grows.
    """

    @property
    def length(self) -> int:
        """The number of tokens that it held at the start of the forward pass."""

    def extend(
        self, encoding: Encoding, k_BGTK: Tensor, v_BGTK: Tensor, x_BTD: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Appends a layer's keys, values and normalised inputs of new tokens, and returns those of all tokens.

        The inputs only matter if the encoding has a `prepare`.
        """


class Attention(nn.Module):
    """Multi-head, or grouped-query, causal attention."""

    def __init__(self, config: "ModelConfig", seq_len: int) -> None:
        super().__init__()
        self.sizes = (config.heads * config.head_dim, config.kv_heads * config.head_dim)
        self.head_dim = config.head_dim
        queries, keys = self.sizes
        # A single matrix, for a single product if queries, keys and values read the same input.
        self.qkv = nn.Linear(config.width, queries + 2 * keys, bias=False)
        if config.qkv_bias:  # Linear's own bias would draw random numbers, and so change all later weights
            self.qkv.bias = nn.Parameter(torch.zeros(queries + 2 * keys))
        self.out = nn.Linear(queries, config.width, bias=False)
        with torch.random.fork_rng(devices=[]):  # see above
            self.gate = nn.Linear(config.width, queries, bias=False) if config.output_gate else None
            # The second query of each head, and the share of its output that is subtracted.
            self.second = nn.Linear(config.width, queries, bias=False) if config.differential else None
            self.share = nn.Linear(config.width, config.heads, bias=False) if config.differential else None
        if config.qkv_bias and self.second is not None:
            self.second.bias = nn.Parameter(torch.zeros(queries))
        projected = (2 if config.differential else 1) * queries + 2 * keys
        self.canon = Canon(projected) if config.canon else None
        self.q_norm, self.k_norm = (  # per head, with one learned scale for all (Qwen 3, Gemma 3)
            nn.RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else None for _ in range(2)
        )
        self.ssmax = SSMax(config.heads, seq_len) if config.ssmax else None
        self.sink_H = nn.Parameter(torch.empty(config.heads)) if config.sinks else None

    def extra_matrices(self) -> list[nn.Linear]:
        """The matrices of optional settings, which read the same input as queries, keys and values."""
        return [matrix for matrix in (self.gate, self.second, self.share) if matrix is not None]

    def forward(
        self,
        x_BTD: Tensor,
        encoding: Encoding,
        pos_T: Tensor,
        plan: Plan = PLAIN,
        first_wanted: int = 0,
        queries_per_chunk: int | None = None,
        observer: Observer | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The output for queries from index `first_wanted` on, [B, T - first_wanted, D].

        With a cache, x_BTD has the tokens after those in the cache, all of them wanted, and pos_T has the positions of
        both.
        """
        queries, keys = self.sizes
        gate_BTC = None if self.gate is None else self.gate(x_BTD[:, first_wanted:]).sigmoid()
        share_BTH = None if self.share is None else self.share(x_BTD[:, first_wanted:]).sigmoid()
        own_pos_T = pos_T if cache is None else pos_T[cache.length :]
        qk_input_BTD, v_input_BTD = encoding.attention_input(x_BTD, own_pos_T)
        if qk_input_BTD is v_input_BTD:
            q, k, v = self.qkv(qk_input_BTD).split([queries, keys, keys], dim=-1)
        elif not _plain(self.qkv.weight):
            q, k = self.qkv(qk_input_BTD)[..., : queries + keys].split([queries, keys], dim=-1)
            v = self.qkv(v_input_BTD)[..., queries + keys :]
        else:
            weight, bias = self.qkv.weight, self.qkv.bias
            qk_bias, v_bias = (None, None) if bias is None else (bias[: queries + keys], bias[queries + keys :])
            q, k = F.linear(qk_input_BTD, weight[: queries + keys], qk_bias).split([queries, keys], dim=-1)
            v = F.linear(v_input_BTD, weight[queries + keys :], v_bias)
        if self.second is not None:  # 2 H heads until scores are computed
            q = torch.cat([q, self.second(qk_input_BTD)], dim=-1)
        q_BHTK, k_BGTK, v_BGTK = (x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for x in (q, k, v))
        if self.q_norm is not None and self.k_norm is not None:
            q_BHTK, k_BGTK = (norm(x.float()).to(x.dtype) for norm, x in ((self.q_norm, q_BHTK), (self.k_norm, k_BGTK)))
        if self.canon is not None:
            parts = [x.transpose(1, 2).flatten(-2) for x in (q_BHTK, k_BGTK, v_BGTK)]
            parts = self.canon(torch.cat(parts, dim=-1)).split([part.shape[-1] for part in parts], dim=-1)
            q_BHTK, k_BGTK, v_BGTK = (x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for x in parts)
        first_known = 0
        if cache is not None:
            first_wanted = first_known = cache.length
            k_BGTK, v_BGTK, x_BTD = cache.extend(encoding, k_BGTK, v_BGTK, x_BTD)
            q_BHTK = F.pad(q_BHTK, (0, 0, first_wanted, 0))  # queries have their index in the window, too
        state = encoding.prepare(x_BTD)
        scale_HT = plan.query_scale(len(pos_T), pos_T.device)
        if self.ssmax is not None:
            scale_HT = self.ssmax(len(pos_T)) if scale_HT is None else self.ssmax(len(pos_T)) * scale_HT
        scoring = Scoring(
            encoding, pos_T, state, scale_HT, first_wanted, first_known, queries_per_chunk, observer, self.sink_H
        )
        if share_BTH is None:
            mixed_BHTK = _gathered(q_BHTK, k_BGTK, v_BGTK, plan, scoring)
        else:  # the encoding has H heads, with parameters for each, so it gets the first and second queries in turn
            q_BHTK, second_BHTK = q_BHTK.chunk(2, dim=1)
            taken_BHTK = _gathered(second_BHTK, k_BGTK, v_BGTK, plan, replace(scoring, observer=None))
            mixed_BHTK = _gathered(q_BHTK, k_BGTK, v_BGTK, plan, scoring) - share_BTH.mT[..., None] * taken_BHTK
        mixed_BTC = mixed_BHTK.transpose(1, 2).flatten(-2)
        return self.out(mixed_BTC if gate_BTC is None else mixed_BTC * gate_BTC)


def _gathered(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, plan: Plan, scoring: Scoring) -> Tensor:
    """The output of the wanted queries, [B, H, T - first_wanted, K]."""
    encoding, pos_T, state = scoring.encoding, scoring.pos_T, scoring.state
    rotated_BHTK, rotated_BGTK = encoding.rotate(q_BHTK, k_BGTK, pos_T, pos_T, state)
    mixed_BHTK = encoding.mix(rotated_BHTK, rotated_BGTK, v_BGTK, state)
    if mixed_BHTK is not None:
        return mixed_BHTK[:, :, scoring.first_wanted :]
    if plan.pairs is not None:
        return attend_branches(branches_of(plan, q_BHTK, k_BGTK, encoding, state), v_BGTK, scoring)
    return attend(rotated_BHTK, rotated_BGTK, v_BGTK, scoring)


class SSMax(nn.Module):
    """Scalable softmax (arXiv 2501.19399): scores are multiplied by s_h ln(i + 1) for query i, window or not.

    There is one learned s per head and layer. Our copy of the paper does not give its initial value; ours makes the
    factor 1 on average over a training window.
    """

    def __init__(self, heads: int, seq_len: int) -> None:
        super().__init__()
        mean = torch.arange(1, seq_len + 1).log().mean()
        self.s_H = nn.Parameter((1 / mean).repeat(heads))

    def forward(self, length: int) -> Tensor:
        """The factor of each head and query, [H, T]."""
        return torch.outer(self.s_H, torch.arange(1, length + 1, device=self.s_H.device).log())


def _plain(weight: Tensor) -> bool:
    """Whether parts of a matrix can be taken; a quantised one is used as a whole."""
    return type(weight) in (nn.Parameter, Tensor)


class FeedForward(nn.Module):
    """SwiGLU, or GeGLU."""

    def __init__(self, config: "ModelConfig") -> None:
        super().__init__()
        self.gelu = config.activation == "gelu_tanh"
        self.gate_up = nn.Linear(config.width, 2 * config.ff_width, bias=False)
        self.down = nn.Linear(config.ff_width, config.width, bias=False)
        self.canon = Canon(2 * config.ff_width) if config.canon else None

    def forward(self, x_BTD: Tensor) -> Tensor:
        if self.canon is None and _plain(self.gate_up.weight):  # two products, since halves of one are slower to read
            gate_BTF, up_BTF = (F.linear(x_BTD, weight) for weight in self.gate_up.weight.chunk(2))
        else:
            gate_up = self.gate_up(x_BTD)
            gate_BTF, up_BTF = (gate_up if self.canon is None else self.canon(gate_up)).chunk(2, dim=-1)
        opened_BTF = F.gelu(gate_BTF, approximate="tanh") if self.gelu else F.silu(gate_BTF)
        return self.down(opened_BTF * up_BTF)


class Block(nn.Module):
    """Attention, then feed-forward, each on the normalised residual stream, and optionally with normalised outputs."""

    def __init__(self, config: "ModelConfig", encoding: Encoding, seq_len: int) -> None:
        super().__init__()
        self.encoding = encoding
        self.attention_norm = RMSNorm(config.width, eps=config.norm_eps)
        self.attention = Attention(config, seq_len)
        self.feed_forward_norm = RMSNorm(config.width, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)
        self.attention_post_norm, self.feed_forward_post_norm = (
            RMSNorm(config.width, eps=config.norm_eps) if config.post_norms else None for _ in range(2)
        )
        self.attention_canon, self.feed_forward_canon = (
            Canon(config.width) if config.canon else None for _ in range(2)
        )
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x_BTD: Tensor,
        encoding: Encoding,
        pos_T: Tensor,
        plan: Plan,
        first_wanted: int = 0,
        queries_per_chunk: int | None = None,
        observer: Observer | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The output for tokens from index `first_wanted` on, [B, T - first_wanted, D].

        encoding: the block's own, as changed by the plan.
        """
        normed_BTD = self.attention_norm(x_BTD)
        unwanted = 0
        if self.attention_canon is not None and self.feed_forward_canon is not None:
            normed_BTD = self.attention_canon(normed_BTD)
            unwanted = min(first_wanted, FEED_FORWARD_SIGHT)  # tokens that the feed-forward part still needs
            first_wanted -= unwanted
        mixed_BTD = self.attention(normed_BTD, encoding, pos_T, plan, first_wanted, queries_per_chunk, observer, cache)
        if self.attention_post_norm is not None:
            mixed_BTD = self.attention_post_norm(mixed_BTD)
        x_BTD = (x_BTD[:, first_wanted:] if first_wanted else x_BTD) + self.dropout(mixed_BTD)
        normed_BTD = self.feed_forward_norm(x_BTD)
        if self.feed_forward_canon is not None:
            normed_BTD = self.feed_forward_canon(normed_BTD)
        fed_BTD = self.feed_forward(normed_BTD)
        if self.feed_forward_post_norm is not None:
            fed_BTD = self.feed_forward_post_norm(fed_BTD)
        x_BTD = x_BTD + self.dropout(fed_BTD)
        return x_BTD[:, unwanted:] if unwanted else x_BTD


class Decoder(nn.Module):
    """A Llama decoder with an encoding per layer."""

    def __init__(self, config: "ModelConfig", encodings: Sequence[Encoding], seq_len: int) -> None:
        """Builds it with fresh weights. seq_len: the training length, tokens."""
        super().__init__()
        self.config, self.seq_len = config, seq_len
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, encoding, seq_len) for encoding in encodings)
        self.norm = RMSNorm(config.width, eps=config.norm_eps)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        if config.tied_embeddings:
            self.head.weight = self.embedding.weight
        self._draw()

    @torch.no_grad()
    def _draw(self) -> None:
        """Draws normal weights, at sizes that training need not correct first; the encodings' own parameters stay.

        A block's matrices have a standard deviation of 0.25 (columns)^-0.5; those that write to the residual stream
        have (2 layers)^-0.5 times that, as in GPT-2. The head has 0.02, so that initial predictions are nearly uniform;
        if embeddings are tied to it, the last norm starts at 0.02 instead of 1. Sinks have 0.02, as in gpt-oss.
        """
        nn.init.normal_(self.embedding.weight, std=EMBEDDED)
        for block in self.blocks:
            attention, feed_forward = cast(Block, block).attention, cast(Block, block).feed_forward
            for matrix in (attention.qkv, feed_forward.gate_up):
                nn.init.normal_(matrix.weight, std=GAIN * matrix.in_features**-0.5)
            for matrix in (attention.out, feed_forward.down):
                nn.init.normal_(matrix.weight, std=GAIN * (2 * len(self.blocks) * matrix.in_features) ** -0.5)
        if self.config.tied_embeddings:
            self.norm.weight.fill_(SMALL)
        else:
            nn.init.normal_(self.head.weight, std=SMALL)
        with torch.random.fork_rng(devices=[]):  # optional settings do not change other weights
            for block in self.blocks:
                attention = cast(Block, block).attention
                for matrix in attention.extra_matrices():
                    nn.init.normal_(matrix.weight, std=GAIN * matrix.in_features**-0.5)
                if attention.sink_H is not None:
                    nn.init.normal_(attention.sink_H, std=SMALL)
            for module in self.blocks.modules():
                if isinstance(module, Canon):
                    module.draw()

    @property
    def encodings(self) -> list[Encoding]:
        """Each layer's encoding."""
        return [cast(Block, block).encoding for block in self.blocks]

    @property
    def encoding(self) -> Encoding:
        """The first layer's encoding, which also sees the embedding."""
        return cast(Block, self.blocks[0]).encoding

    def defined_at(self, length: int, plan: Plan) -> bool:
        """Whether windows of `length` tokens are defined under a plan, in every layer."""
        return all(encoding.defined_at(length, plan.of_layer(encoding)) for encoding in self.encodings)

    def resolve(self, plan: Plan, storage: Storage = "fp32") -> ResolvedPlan:
        """Resolves a plan for every layer, and rounds the encodings' own values to `storage`.

        Reuse it across forward passes that share a plan.
        """
        plan = plan.everywhere(self.encodings)
        of_layers = tuple(plan.of_layer(encoding) for encoding in self.encodings)
        extended = (encoding.extended(own) for encoding, own in zip(self.encodings, of_layers, strict=True))
        return ResolvedPlan(plan, tuple(one.rounded_to(storage) for one in extended), of_layers=of_layers)

    def hidden(
        self, tokens_BT: Tensor, plan: Plan | ResolvedPlan = PLAIN, first_wanted: int = 0, cache: Cache | None = None
    ) -> Tensor:
        """The normalised output of the last block, [B, T - first_wanted, D], for tokens from that index on.

        With a cache, the tokens follow those that it holds, are added to it, and first_wanted must be 0. A bare plan
        is resolved first: see `resolve`.
        """
        assert cache is None or not self.config.canon  # a cache does not keep the inputs of convolutions
        setting = plan if isinstance(plan, ResolvedPlan) else self.resolve(plan)
        plan, encodings = setting.plan, setting.encodings
        queries, observer = setting.queries_per_chunk, setting.observer
        past = 0 if cache is None else cache.length
        index_T = torch.arange(past + tokens_BT.shape[1], dtype=torch.float32, device=tokens_BT.device)
        pos_T = encodings[0].positions(index_T)
        placed_T = {1.0: pos_T}  # by scale, so that layers with the same scale share a tensor and its rotation
        plans = [setting.of_layer(layer) for layer in range(len(encodings))]
        for own in (plan, *plans):
            if own.position_scale not in placed_T:
                placed_T[own.position_scale] = pos_T * own.position_scale
        pos_T = placed_T[plan.position_scale]
        x_BTD = self.dropout(encodings[0].embed(self.embedding(tokens_BT), pos_T[past:] if past else pos_T))
        for layer, (block, encoding, own) in enumerate(zip(self.blocks, encodings, plans, strict=True)):
            first = first_wanted if layer == len(plans) - 1 else 0
            pos_T = placed_T[own.position_scale]
            x_BTD = block(x_BTD, encoding, pos_T, own, first, queries, observer, cache)
        return self.norm(x_BTD)

    def forward(self, tokens_BT: Tensor, plan: Plan | ResolvedPlan = PLAIN) -> Tensor:
        """Logits, [B, T, V]."""
        return self.head(self.hidden(tokens_BT, plan))


class RMSNorm(nn.RMSNorm):
    """Equal to torch's except for rounding, and faster in uncompiled training on a CPU.

    The gradient takes two products and three passes there; torch takes a pass for each operation of the formula, which
    costs 4 to 5 % of a step.
    """

    def forward(self, x: Tensor) -> Tensor:
        plain = x.device.type != "cpu" or not torch.is_grad_enabled() or torch.compiler.is_compiling()
        if plain or x.dtype != torch.float32:
            return super().forward(x)
        return _RMSNorm.apply(x.flatten(0, -2), self.weight, self.eps)[0].view_as(x)


class _RMSNorm(torch.autograd.Function):
    """weight x / rms(x), and 1 / rms(x) for the gradient."""

    @staticmethod
    def forward(x_ND: Tensor, weight_D: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        square_N = torch.linalg.vector_norm(x_ND, dim=-1).square().div(x_ND.shape[1])
        scale_N = (square_N + eps).rsqrt()
        return (x_ND * scale_N[:, None]).mul_(weight_D), scale_N

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        x_ND, weight_D, _ = inputs
        ctx.save_for_backward(x_ND, weight_D, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad_ND: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        x_ND, weight_D, scale_N = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):  # the products are sums, in float32
            product_ND = grad_ND * x_ND
            inner_N = -(product_ND @ weight_D) * scale_N**3 / x_ND.shape[1]
            grad_x_ND = (grad_ND * weight_D).mul_(scale_N[:, None]).addcmul_(x_ND, inner_N[:, None])
            return grad_x_ND, scale_N @ product_ND, None
