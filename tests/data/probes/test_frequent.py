"""Frequent words: the answers come most often in the list, in this order."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probe


@pytest.mark.parametrize(("spec", "top"), [("frequent", 2), ("frequent:top=1", 1), ("frequent:top=4", 4)])
@pytest.mark.parametrize("length", [26, 27, 64, 300])
def test_answers_are_the_most_frequent_words_of_the_list(text_in, spec, top, length):
    vocabulary, probe = Vocabulary(300, 7), parse_probe(spec)
    text, symbols, sizes = text_in(vocabulary), vocabulary.symbols(16), set()
    for seed in range(60):
        full = seed % 2 == 0
        made = probe.sequence(np.random.default_rng(seed), length, text, vocabulary, 0.5 if full else None)
        first, last = np.flatnonzero(made.tokens == vocabulary.marker(probe.marker))
        inside = np.isin(made.tokens[:last], symbols)
        count = int(inside.sum())
        assert inside[first + 1 : first + 1 + count].all(), "a word is in the text around"
        times = Counter(made.tokens[first + 1 : first + 1 + count].tolist()).most_common()
        assert made.tokens[made.answers].tolist() == [word for word, _ in times[:top]]
        counts = [*(number for _, number in times), 0]
        assert all(a > b for a, b in pairwise(counts[: top + 1])), "two words come equally often"
        assert count == length // 2 or not full
        sizes.add(count)
    assert len(sizes) > 3, "in training lists are of several lengths"
    assert max(sizes) == length // 2


def test_words_come_by_the_square_of_their_rank():
    """Of 16 words: the squares' inverses add up to 1.5843, and what rounding leaves is the first one's."""
    times = parse_probe("frequent").times(1000)
    assert times.tolist()[1:5] == [1000 // (1.58434 * rank**2) for rank in (2, 3, 4, 5)]
    assert times.sum() == 1000
    assert 631 <= times[0] <= 631 + 16
