"""PaTH: positions by accumulated Householder products."""

import torch
from torch import Tensor, nn

from extrapolate.encodings.base import LOGITS, Context, Dims, Encoding, register
from extrapolate.errors import UserError

# Tokens at a time. The products of a block come from one triangular system, and queries are carried from block to block
# towards earlier keys. A larger block costs more arithmetic, a smaller one more steps.
BLOCK = 32
TAPS = 3  # of the convolution
EPSILON = 1e-6  # keeps the norm of w from being 0


@register("path")
class PaTH(Encoding):
    """Scores a query and a key through a product of Householder-like matrices, one for each token between them.

    score(i, j) = q_i H_i H_(i-1) ... H_(j+1) k_j / sqrt(K), with H_t = 1 - beta_t w_t w_t^T, beta_t = 2 sigmoid(u x_t +
    b), w_t = silu(conv(W2 W1 x)_t) divided by its norm, conv a causal convolution over 3 tokens for each channel, and x
    the layer's attention input; each head has its own w and beta. The product includes the query's own token, but not
    the key's. beta starts at 1, so that H_t at first removes the direction w_t.
    Beyond L: the product depends on content, so no position can leave a trained range; but a factor can only shrink a
    vector's component along w_t or flip its sign, so thousands of factors leave little.

    With a forget gate, ln f_(j+1) + ... + ln f_i is added as in FoX, but inside the division by sqrt(K), as in the
    authors' code. With grouped keys, the authors' w belongs to a key head; here every query head has one. The initial
    values of W1, W2 and the convolution are ours: the size of w is about 1 before the norm, at any width.

    Arguments: forget, whether there is a gate (default no); rank, the number of rows of W1 (default 32).
    Source: Yang et al., arXiv 2505.16381.
    """

    display = "PaTH"
    source = "arXiv 2505.16381"
    family = "content-dependent"
    accepts = frozenset({LOGITS})
    positional = False

    def __init__(self, dims: Dims, *, forget: bool = False, rank: int = 32) -> None:
        super().__init__(dims)
        if rank < 1:
            raise UserError(f"path: rank must be at least 1, not {rank}")
        self.forget = forget
        self.rank = rank
        channels = dims.heads * dims.head_dim
        self.narrow = nn.Linear(dims.width, rank, bias=False)
        self.wide = nn.Linear(rank, channels, bias=False)
        for matrix in (self.narrow, self.wide):
            nn.init.normal_(matrix.weight, std=matrix.in_features**-0.5)
        self.taps_UC = nn.Parameter(torch.randn(TAPS, channels) * TAPS**-0.5)
        self.strength = nn.Linear(dims.width, dims.heads)
        self.gate = nn.Linear(dims.width, dims.heads) if forget else None
        for layer in (self.strength, self.gate):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def prepare(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """w; the solution for every block, see `_solved`; and the sum of ln f up to each token, if there is a gate."""
        length = x_BTD.shape[1]
        padded_BTC = nn.functional.pad(self.wide(self.narrow(x_BTD)).float(), (0, 0, TAPS - 1, 0))
        mixed_BTC = torch.zeros_like(padded_BTC[:, :length])
        for lag, tap_C in enumerate(self.taps_UC):
            start = TAPS - 1 - lag
            mixed_BTC = mixed_BTC + tap_C * padded_BTC[:, start : start + length]
        w_BHTK = nn.functional.silu(mixed_BTC).unflatten(-1, (self.dims.heads, -1)).transpose(1, 2)
        w_BHTK = w_BHTK * (w_BHTK.square().sum(dim=-1, keepdim=True) + EPSILON).rsqrt()
        beta_BHT = 2 * self.strength(x_BTD).float().sigmoid().mT
        sum_BHT = None
        if self.gate is not None:
            sum_BHT = nn.functional.logsigmoid(self.gate(x_BTD).float()).cumsum(dim=1).mT
        with torch.autocast(x_BTD.device.type, enabled=False):
            return w_BHTK, _solved(w_BHTK, beta_BHT), sum_BHT

    def scores(self, q_BHTK: Tensor, k_BHSK: Tensor, context: Context) -> Tensor:
        w_BHTK, solved_BHNCC, sum_BHT = context.state
        with torch.autocast(q_BHTK.device.type, enabled=False):
            scores_BHTS = _products(q_BHTK.float(), k_BHSK.float(), w_BHTK, solved_BHNCC, context)
        if sum_BHT is not None:
            scores_BHTS = scores_BHTS + sum_BHT[:, :, context.queries, None] - sum_BHT[:, :, None, context.keys]
        return scores_BHTS * self.dims.head_dim**-0.5


def _solved(w_BHTK: Tensor, beta_BHT: Tensor) -> Tensor:
    """For every block of C tokens, the matrix M, [B, H, N, C, C], with which it turns a query q into q - (q W^T M) W.

    q H_C ... H_1 = q - c W, and c_t = beta_t (q w_t - sum over s > t of c_s (w_s w_t)): what the later tokens of a
    block have taken is gone when token t takes. So c (1 + L beta) = q W^T beta, L the part of W W^T below the diagonal.
    The leading part of M belongs only to the first tokens, so a query inside the block can use it too.
    """
    length = w_BHTK.shape[2]
    size = min(BLOCK, length)
    missing = -length % size
    w_BHNCK = nn.functional.pad(w_BHTK, (0, 0, 0, missing)).unflatten(2, (-1, size))
    beta_BHNC1 = nn.functional.pad(beta_BHT, (0, missing)).unflatten(2, (-1, size))[..., None]
    one_CC = torch.eye(size, device=w_BHTK.device)
    system_BHNCC = one_CC + beta_BHNC1 * (w_BHNCK @ w_BHNCK.mT).tril(-1)
    inverse_BHNCC = torch.linalg.solve_triangular(system_BHNCC, one_CC, upper=False, unitriangular=True)
    return inverse_BHNCC * beta_BHNC1.mT


def _products(q_BHTK: Tensor, k_BHSK: Tensor, w_BHTK: Tensor, solved_BHNCC: Tensor, context: Context) -> Tensor:
    """q_i H_i ... H_(j+1) k_j, [B, H, T, S], for every key that a query sees; float32."""
    queries, keys, size = context.queries, context.keys, solved_BHNCC.shape[-1]
    index = torch.arange(keys.stop, device=q_BHTK.device)
    columns = []
    start, carried_BHTK = q_BHTK.shape[2], q_BHTK[:, :, q_BHTK.shape[2] :]
    for block in reversed(range(keys.start // size, (keys.stop + size - 1) // size)):
        tokens = slice(block * size, min((block + 1) * size, keys.stop))
        first_key = max(keys.start, tokens.start)
        # Queries in this block come to those that later blocks have passed on.
        before, start = start, min(start, max(0, tokens.start - queries.start))
        carried_BHTK = torch.cat([q_BHTK[:, :, start:before], carried_BHTK], dim=2)
        w_BHCK = w_BHTK[:, :, tokens]
        near_BHSK = k_BHSK[:, :, first_key - keys.start : tokens.stop - keys.start]
        token_C, key_S = index[tokens], index[first_key : tokens.stop]
        query_T = torch.arange(queries.start + start, queries.stop, device=q_BHTK.device)
        count = len(token_C)
        met_BHTC = (carried_BHTK @ w_BHCK.mT).masked_fill(token_C > query_T[:, None], 0.0)
        taken_BHTC = met_BHTC @ solved_BHNCC[:, :, block, :count, :count]
        after_BHCS = (w_BHCK @ near_BHSK.mT).masked_fill(token_C[:, None] <= key_S, 0.0)
        own_BHTS = carried_BHTK @ near_BHSK.mT - taken_BHTC @ after_BHCS
        columns.append(nn.functional.pad(own_BHTS, (0, 0, start, 0)))
        if first_key > keys.start:
            carried_BHTK = carried_BHTK - taken_BHTC @ w_BHCK
    return torch.cat(columns[::-1], dim=-1)
