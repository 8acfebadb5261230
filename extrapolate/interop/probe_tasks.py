"""The probes as tasks of lm-eval for any model, in words instead of tokens so that every tokenizer can read them.

The tasks are in the folder `tasks` beside this file, for `lm_eval --include_path`. Algorithms have none, because words
do not tell which digit or permutation they stand for. Every token of a probe is a word of a text, made of letters only;
the model reads the words with spaces between them. An answer is right if each of its tokens is the likeliest, given the
true ones before it.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, cast

import numpy as np

from extrapolate.data.probes.base import Vocabulary, parse_probe
from extrapolate.data.sources import open_source
from extrapolate.data.store import Split
from extrapolate.errors import UserError

WORDS = 2048  # the most common words of a text; all others are removed
READ = 500_000  # the most words to read from a text
END = "."  # stands for the end-of-text token
_WORD = re.compile(r"\b[A-Za-z]{2,}\b")


class Words(NamedTuple):
    """A text as numbered words, with the interface of a split of a token store. Number 0 is END."""

    known: list[str]
    numbers: np.ndarray
    name: str = "test"

    @classmethod
    def of(cls, text: str) -> "Words":
        """The most common words of a source, a file or a folder. Raises UserError if it has too few."""
        words: Iterator[str] = (word for document in open_source(text) for word in _WORD.findall(document.text))
        found = list(islice(words, READ))
        by_count = sorted(Counter(found).items(), key=lambda item: (-item[1], item[0]))
        known = [END, *(word for word, _ in by_count[:WORDS])]
        place = {word: number for number, word in enumerate(known)}
        numbers = [place[word] for word in found if word in place]
        if len(known) <= WORDS:
            raise UserError(f"{text} has {len(known) - 1} different words, and probes take {WORDS}: give more text")
        return cls(known, np.array(numbers))

    @property
    def n_tokens(self) -> int:
        """The number of words in the text."""
        return len(self.numbers)

    def slice(self, start: int, end: int) -> np.ndarray:
        """The numbers of a range of words."""
        return self.numbers[start:end]

    def spelt(self, numbers: np.ndarray) -> str:
        """The words with spaces between them."""
        return " ".join(self.known[number] for number in numbers)


def documents(probe: str, words: int, trials: int, text: str) -> list[dict[str, Any]]:
    """The questions of a probe, `trials` at each depth, with `context`, `answer`, `depth` and `window`.

    words: the length of a window. A window that is right only if all of its answers are is one question; otherwise
    each answer is one, after the right answers before it. Raises UserError if the probe does not fit.
    """
    made, source = parse_probe(probe), Words.of(text)
    vocabulary = Vocabulary(len(source.known), 0)
    found = []
    for depth in made.depths:
        tokens_WN, answers_A = made.sequences(words, depth, trials, cast(Split, source), vocabulary)
        for number, tokens_N in enumerate(tokens_WN):
            asked = [range(answers_A[0], len(tokens_N))] if made.whole else [range(at, at + 1) for at in answers_A]
            for places in asked:
                answer = source.spelt(tokens_N[places.start : places.stop])
                context = source.spelt(tokens_N[: places.start])
                found.append({"context": context, "answer": f" {answer}", "depth": depth, "window": number})
    return sorted(found, key=lambda question: question["window"])  # the first ones have every depth


def dataset(probe: str, words: int = 256, trials: int = 16, text: str = "stdlib", **others: Any) -> dict[str, Any]:
    """The questions in lm-eval's format. Task files name this function and pass their `metadata` as arguments."""
    import datasets

    return {"test": datasets.Dataset.from_list(documents(probe, int(words), int(trials), str(text)))}
