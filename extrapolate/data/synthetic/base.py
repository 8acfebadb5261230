"""Text from random processes whose best possible prediction is known.

Every document has a hidden parameter that a reader can only infer from the document itself. So the lowest possible loss
falls with more context, and can be computed for every window from its tokens. Shapes: W windows, T tokens.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from extrapolate import specs
from extrapolate.data.documents import Document
from extrapolate.data.special_tokens import EOS
from extrapolate.errors import UserError

ALPHABET = string.ascii_letters + string.digits
DRAWN_AT_ONCE = 64  # documents


class Process(ABC):
    """A random process over `states` states, each a token and a letter of text.

    Keyword-only arguments are the configuration: `documents` of `length` tokens each, drawn from `seed`. Windows of
    16 L need a length of at least 16 L + 1.
    """

    def __init__(self, *, states: int = 16, documents: int = 4096, length: int = 1040, seed: int = 0) -> None:
        if not 2 <= states <= len(ALPHABET):
            raise UserError(f"a synthetic source has 2 to {len(ALPHABET)} states, not {states}")
        if documents < 3 or length < 2:
            raise UserError("a synthetic source needs at least 3 documents of at least 2 tokens")
        self.states, self.documents, self.length, self.seed = states, documents, length, seed

    @abstractmethod
    def draw(self, rng: np.random.Generator, documents: int) -> np.ndarray:
        """Documents, states 0..states-1, int64 [documents, length]."""

    @abstractmethod
    def optimum(self, tokens_WT: np.ndarray) -> np.ndarray:
        """The loss of the best prediction of each token but the first, given those before it in its window.

        Returns nats, float64 [W, T - 1].
        """

    def __iter__(self) -> Iterator[Document]:
        letters = np.array(list(ALPHABET[: self.states]))
        for first in range(0, self.documents, DRAWN_AT_ONCE):
            rng = np.random.default_rng([self.seed, first])
            for row, states in enumerate(self.draw(rng, min(DRAWN_AT_ONCE, self.documents - first))):
                yield Document(f"{first + row}", "".join(letters[states]))

    def tokenizer(self) -> Tokenizer:
        """One token per state, with its number, and `<eos>`."""
        vocabulary = {letter: state for state, letter in enumerate(ALPHABET[: self.states])} | {EOS: self.states}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=EOS))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        tokenizer.decoder = decoders.Fuse()
        tokenizer.add_special_tokens([EOS])
        return tokenizer


processes: specs.Registry[Process] = specs.Registry("synthetic source")


def parse_process(spec: str) -> Process:
    """A process from a spec, `markov:states=16,concentration=0.3`. Raises UserError if the spec is invalid."""
    parsed = specs.parse(spec)
    cls = processes[parsed.name]
    return cls(**specs.convert_arguments(cls, parsed.arguments, owner=parsed.name))
