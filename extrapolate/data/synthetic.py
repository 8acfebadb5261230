"""Text from random processes whose best possible prediction is known.

Every document draws a hidden parameter, which a reader can only infer from the document itself: the least possible
loss falls as context grows, and can be computed for every window from its own tokens. Shapes: W windows, T tokens.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from extrapolate import specs
from extrapolate.data.sources import Document
from extrapolate.data.tokenizer import EOS

ALPHABET = string.ascii_letters + string.digits
DRAWN_AT_ONCE = 64  # documents


class Process(ABC):
    """A random process over so many states, each a token and a letter of text.

    Keyword-only arguments are the configuration: `documents` of `length` tokens each, drawn from `seed`. Windows of
    16 L take a length of 16 L + 1 or more.
    """

    def __init__(self, *, states: int = 16, documents: int = 4096, length: int = 1040, seed: int = 0) -> None:
        if not 2 <= states <= len(ALPHABET):
            raise ValueError(f"a synthetic source has 2 to {len(ALPHABET)} states, not {states}")
        if documents < 3 or length < 2:
            raise ValueError("a synthetic source needs at least 3 documents of at least 2 tokens")
        self.states, self.documents, self.length, self.seed = states, documents, length, seed

    @abstractmethod
    def draw(self, rng: np.random.Generator, documents: int) -> np.ndarray:
        """Documents, states 0..states-1, int64 [documents, length]."""

    @abstractmethod
    def optimum(self, tokens_WT: np.ndarray) -> np.ndarray:
        """The loss of the best prediction of each token but the first, from those before it in its window.

        Returns nats, float64 [W, T - 1].
        """

    def __iter__(self) -> Iterator[Document]:
        letters = np.array(list(ALPHABET[: self.states]))
        for first in range(0, self.documents, DRAWN_AT_ONCE):
            rng = np.random.default_rng([self.seed, first])
            for row, states in enumerate(self.draw(rng, min(DRAWN_AT_ONCE, self.documents - first))):
                yield Document(f"{first + row}", "".join(letters[states]))

    def tokenizer(self) -> Tokenizer:
        """One token a state, numbered like it, and `<eos>`."""
        vocabulary = {letter: state for state, letter in enumerate(ALPHABET[: self.states])} | {EOS: self.states}
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=EOS))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
        tokenizer.decoder = decoders.Fuse()
        tokenizer.add_special_tokens([EOS])
        return tokenizer


processes: specs.Registry[Process] = specs.Registry("synthetic source")


def build(spec: str) -> Process:
    """A process from `markov:states=16,concentration=0.3`. Raises ValueError where there is none, or it refuses."""
    parsed = specs.parse(spec)
    cls = processes[parsed.name]
    return cls(**specs.convert_arguments(cls, parsed.arguments, owner=parsed.name))


@processes.register("markov")
class Markov(Process):
    """A Markov chain whose transition rows are drawn from a symmetric Dirichlet prior, anew for every document.

    The best prediction of j after i is (n_ij + c) / (n_i + c K): n are the transitions seen in the window, K the
    states, c the concentration. It takes the window's first token as given. A chain that has run for long favours
    some states, so that the first token by itself says a little about the rows; a reader could gain at most 0.1 nats
    in a whole window from that (K 16, c 0.3), 0.002 a token at 64 tokens.
    Arguments: states K (default 16); concentration c (default 0.3); documents (default 4096), of `length` tokens each
    (default 1040, for 16x of 64); seed.
    """

    def __init__(
        self,
        *,
        states: int = 16,
        concentration: float = 0.3,
        documents: int = 4096,
        length: int = 1040,
        seed: int = 0,
    ) -> None:
        super().__init__(states=states, documents=documents, length=length, seed=seed)
        if concentration <= 0:
            raise ValueError(f"markov: concentration must be more than 0, not {concentration:g}")
        self.concentration = concentration

    def draw(self, rng: np.random.Generator, documents: int) -> np.ndarray:
        prior = np.full(self.states, self.concentration)
        rows = np.cumsum(rng.dirichlet(prior, size=(documents, self.states)), axis=-1)
        rows[..., -1] = 1.0
        found = np.empty((documents, self.length), np.int64)
        found[:, 0] = rng.integers(0, self.states, documents)
        each = np.arange(documents)
        for t in range(1, self.length):
            found[:, t] = (rows[each, found[:, t - 1]] < rng.random((documents, 1))).sum(axis=1)
        return found

    def optimum(self, tokens_WT: np.ndarray) -> np.ndarray:
        windows, length = tokens_WT.shape
        counts = np.zeros((windows, self.states, self.states))
        totals = np.zeros((windows, self.states))
        losses = np.empty((windows, length - 1))
        each = np.arange(windows)
        for t in range(length - 1):
            here, following = tokens_WT[:, t], tokens_WT[:, t + 1]
            seen = counts[each, here, following] + self.concentration
            losses[:, t] = np.log((totals[each, here] + self.states * self.concentration) / seen)
            counts[each, here, following] += 1
            totals[each, here] += 1
        return losses


@processes.register("echo")
class Echo(Process):
    """Every token repeats the one `lag` places before, but for noise; each document draws its lag.

    Lags are shortest, 2 shortest, 4 shortest, ... up to longest, equally likely. A repetition is replaced by a token
    drawn evenly from all with probability `noise`, and so are the first `lag` tokens. A window that is not longer than
    the lag holds nothing to predict from: lags beyond L are of use to longer windows alone. The best prediction weighs
    every lag by how well it explains the window so far.
    Arguments: states (default 16); shortest (default 8) and longest (default 256), tokens; noise (default 0.1);
    documents (default 4096), of `length` tokens each (default 1040, for 16x of 64); seed.
    """

    def __init__(
        self,
        *,
        states: int = 16,
        shortest: int = 8,
        longest: int = 256,
        noise: float = 0.1,
        documents: int = 4096,
        length: int = 1040,
        seed: int = 0,
    ) -> None:
        super().__init__(states=states, documents=documents, length=length, seed=seed)
        if not 1 <= shortest <= longest < length:
            raise ValueError(f"echo: expected 1 <= shortest <= longest < length, not {shortest}, {longest}, {length}")
        if not 0 < noise < 1:
            raise ValueError(f"echo: noise must be between 0 and 1, not {noise:g}")
        self.shortest, self.longest, self.noise = shortest, longest, noise
        self.lags = [shortest * 2**n for n in range((longest // shortest).bit_length())]

    def draw(self, rng: np.random.Generator, documents: int) -> np.ndarray:
        found = rng.integers(0, self.states, (documents, self.length))
        repeated = rng.random((documents, self.length)) >= self.noise
        for row, lag in enumerate(rng.choice(self.lags, documents)):
            for t in range(lag, self.length):
                if repeated[row, t]:
                    found[row, t] = found[row, t - lag]
        return found

    def optimum(self, tokens_WT: np.ndarray) -> np.ndarray:
        windows, length = tokens_WT.shape
        log_p = np.full((len(self.lags), windows, length), -np.log(self.states))  # of each token, under each lag
        for i, lag in enumerate(self.lags):
            same = tokens_WT[:, lag:] == tokens_WT[:, :-lag]
            log_p[i, :, lag:] = np.log((1 - self.noise) * same + self.noise / self.states)
        before = np.cumsum(log_p, axis=2) - log_p
        return (np.logaddexp.reduce(before, axis=0) - np.logaddexp.reduce(before + log_p, axis=0))[:, 1:]
