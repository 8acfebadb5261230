"""Needle, passkey and copy: the block is a string, which is said again at the end."""

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probe


@pytest.mark.parametrize(("spec", "answers"), [("needle", 1), ("passkey", 4), ("passkey:length=2", 2), ("copy", 16)])
@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_every_answer_stands_in_the_block(text_in, spec, answers, depth):
    """What follows the first marker follows the last one, and the marker is the only token before the answers."""
    vocabulary, probe = Vocabulary(300, 7), parse_probe(spec)
    windows, places = probe.sequences(64, depth, 20, text_in(vocabulary), vocabulary)
    assert places.tolist() == list(range(65 - answers, 65))
    for tokens in windows:
        first, last = np.flatnonzero(tokens == vocabulary.marker(probe.marker))
        assert last == places[0] - 1
        assert (tokens[first + 1 : first + 1 + answers] == tokens[places]).all()


def test_copies_are_of_any_length_in_training_and_else_as_long_as_they_get(text_in):
    vocabulary, rng, probe = Vocabulary(300, 7), np.random.default_rng(0), parse_probe("copy")
    text = text_in(vocabulary)
    made = [probe.sequence(rng, 40, text, vocabulary) for _ in range(600)]
    assert {len(window.answers) for window in made} == set(range(1, 11))
    for length in (4, 41, 640):
        assert len(probe.sequence(rng, length, text, vocabulary, 0.5).answers) == length // 4
