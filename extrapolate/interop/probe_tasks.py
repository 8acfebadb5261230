"""The probes as tasks of lm-eval, for any model: in words instead of tokens, so that every tokenizer can read them.

The folder `tasks` beside this file has the tasks: `lm_eval --include_path`. Algorithms have none, because words do not
tell which digit or permutation each stands for. Every token of a probe is a word of a text,
made of letters alone; the model reads the words with spaces between them. An answer counts if all of its tokens are
the likeliest, given the true ones before them.
"""

import re
from collections import Counter
from typing import Any, NamedTuple, cast

import numpy as np

from extrapolate.data.probes.base import Vocabulary, parse_probe
from extrapolate.data.sources import open_source
from extrapolate.data.store import Split
from extrapolate.errors import UserError

WORDS = 2048  # the commonest of a text; the others are left out of it
READ = 500_000  # words of a text, at most
END = "."  # stands for the end-of-text token
_WORD = re.compile(r"\b[A-Za-z]{2,}\b")


class Words(NamedTuple):
    """A text as probes read it, like a split of a token store: words by their numbers, of which 0 is END."""

    known: list[str]
    numbers: np.ndarray
    name: str = "test"

    @classmethod
    def of(cls, text: str) -> "Words":
        """The commonest words of a source, a file or a folder. Raises UserError if they are too few."""
        found: list[str] = []
        for document in open_source(text):
            found += _WORD.findall(document.text)
            if len(found) >= READ:
                break
        counts = Counter(found[:READ])
        known = [END, *(word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:WORDS])]
        place = {word: number for number, word in enumerate(known)}
        numbers = [place[word] for word in found[:READ] if word in place]
        if len(known) <= WORDS:
            raise UserError(f"{text} has {len(known) - 1} different words, and probes take {WORDS}: give more text")
        return cls(known, np.array(numbers))

    @property
    def n_tokens(self) -> int:
        """How many words the text has."""
        return len(self.numbers)

    def slice(self, start: int, end: int) -> np.ndarray:
        """Some of its words, by their numbers."""
        return self.numbers[start:end]

    def spelt(self, numbers: np.ndarray) -> str:
        """Words with spaces between them."""
        return " ".join(self.known[number] for number in numbers)


def documents(probe: str, words: int, trials: int, text: str) -> list[dict[str, Any]]:
    """The questions of a probe, `trials` at each depth: `context`, `answer`, `depth`, and the `window` they are from.

    words: the length of a window. If a window counts as right only with all of its answers, it is one question;
    else each answer is one, after the right ones before it. Raises UserError if the probe does not fit.
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
    """What a task's file names: the questions as lm-eval takes them. Its `metadata` are the arguments."""
    import datasets

    return {"test": datasets.Dataset.from_list(documents(probe, int(words), int(trials), str(text)))}
