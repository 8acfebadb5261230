"""What a measurement gets: a model at one length, and the windows it reads.

Shapes: W windows, B windows of a batch, N inputs, T queries, S keys, H heads, K head dim.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from extrapolate.model.language_model import LanguageModel
from extrapolate.model.model import Model

BATCH_TOKENS = 2048  # inputs in a forward pass, which has at least one window
SEED = 0  # of the random tokens, so that results are reproducible


@dataclass(frozen=True)
class Chunk:
    """The attention of one layer in some windows, for some queries.

    rows: which of the W windows. q_BHTK, k_BHSK: as scored; None if they have several rotations. weight_BHTS: the
    probabilities. queries, keys: their indices.
    """

    rows: slice
    layer: int
    q_BHTK: Tensor | None
    k_BHSK: Tensor | None
    weight_BHTS: Tensor
    queries: slice
    keys: slice

    @cached_property
    def query_index(self) -> Tensor:
        """The queries' indices, int64."""
        return torch.arange(self.queries.start, self.queries.stop, device=self.weight_BHTS.device)


@dataclass(frozen=True)
class Inspected:
    """A model under one plan, and windows of N inputs and the next token, int64 [W, N + 1], on the model's device.

    setting: made by the model from the plan. seq_len: the training length L. advance: called with the number of inputs
    computed. Only the last L/2 inputs of a window are examined, which are the same at every length.
    """

    model: LanguageModel
    setting: Any
    seq_len: int
    tokens_WN: Tensor
    advance: Callable[[float], None] = lambda inputs: None

    @property
    def length(self) -> int:
        """N, tokens."""
        return self.tokens_WN.shape[1] - 1

    @property
    def first_query(self) -> int:
        """The index of the first input that is examined. Index 0 never is, because it sees only itself."""
        return max(1, self.length - max(1, self.seq_len // 2))

    @property
    def query_index(self) -> Tensor:
        """The indices of the inputs that are examined, int64."""
        return torch.arange(self.first_query, self.length, device=self.tokens_WN.device)

    @property
    def decoder(self) -> Model:
        """The model, which must be one of this package."""
        assert isinstance(self.model, Model)
        return self.model

    @cached_property
    def random_tokens(self) -> Tensor:
        """Tokens of the same shape, drawn from all windows: the same frequencies, but no order."""
        pool = self.tokens_WN.flatten().cpu()
        drawn = torch.randint(len(pool), self.tokens_WN.shape, generator=torch.Generator().manual_seed(SEED))
        return pool[drawn].to(self.tokens_WN.device)

    def batches(self, windows: int, length: int) -> list[slice]:
        """Splits windows of a length into batches of BATCH_TOKENS inputs."""
        size = max(1, BATCH_TOKENS // length)
        return [slice(start, min(start + size, windows)) for start in range(0, windows, size)]

    @torch.inference_mode()
    def observe(self, look: Callable[[Chunk], None], *texts_WN: Tensor) -> None:
        """Runs the model on texts, and calls `look` with the attention of the examined inputs, layer by layer.

        A batch has the same windows of all texts, those of the first text first.
        """
        for rows in self.batches(len(texts_WN[0]), self.length * len(texts_WN)):
            inputs_BN = torch.cat([text_WN[rows, :-1] for text_WN in texts_WN])
            observer = _Shown(look, rows, self.first_query)
            self.decoder.hidden(inputs_BN, replace(self.setting, observer=observer))
            self.advance(inputs_BN.numel())


@dataclass(frozen=True)
class _Shown:
    """An observer that passes on the attention of queries from index `first` on."""

    look: Callable[[Chunk], None]
    rows: slice
    first: int

    def attended(
        self, layer: int, q_BHTK: Tensor | None, k_BHSK: Tensor | None, weight_BHTS: Tensor, queries: slice, keys: slice
    ) -> None:
        skipped = max(0, self.first - queries.start)
        if queries.start + skipped < queries.stop:
            q_BHTK = None if q_BHTK is None else q_BHTK[:, :, skipped:]
            wanted = slice(queries.start + skipped, queries.stop)
            self.look(Chunk(self.rows, layer, q_BHTK, k_BHSK, weight_BHTS[:, :, skipped:], wanted, keys))
