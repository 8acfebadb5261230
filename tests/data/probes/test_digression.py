"""Return from a digression: the first key is asked for, right after other pairs."""

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probe

VOCABULARY = Vocabulary(300, 7)


@pytest.mark.parametrize(("spec", "decoys"), [("digression", 1), ("digression:decoys=3", 3)])
@pytest.mark.parametrize("depth", [None, 0.0, 0.3, 1.0])
def test_the_answer_is_the_first_keys_value_and_decoys_are_between(text_in, spec, decoys, depth):
    probe, text = parse_probe(spec), text_in(VOCABULARY)
    assert probe.least() + 1 == 3 + 1 + 2 * (decoys + 1)  # the two parts fill the window and its next token
    for seed in range(40):
        tokens, answers = probe.sequence(np.random.default_rng(seed), 64, text, VOCABULARY, depth)
        first, last = np.flatnonzero(tokens == VOCABULARY.marker(7))
        key, value = tokens[first + 1 : first + 3]
        assert last == 64 - 2 * decoys - 2
        between = dict(tokens[last + 1 : last + 1 + 2 * decoys].reshape(-1, 2).tolist())
        assert len(between) == len(set(between.values())) == decoys
        assert key not in between
        assert value not in between.values()
        assert set(between) | {int(key)} <= set(VOCABULARY.keys(16).tolist())
        assert set(between.values()) | {int(value)} <= set(VOCABULARY.symbols(16).tolist())
        assert (tokens[63], tokens[64], answers.tolist()) == (key, value, [64])
        assert (tokens == key).sum() == 2
        assert all((tokens == other).sum() == 1 for other in between)
        if depth is not None:
            assert first == round(depth * (last - 3))
        (candidates,) = probe.candidates(tokens[None], VOCABULARY)
        assert sorted(candidates.tolist()) == sorted([int(value), *between.values()])


def test_the_distance_alone_changes_with_the_depth(text_in):
    probe, text = parse_probe("digression"), text_in(VOCABULARY)
    ends = {probe.sequence(np.random.default_rng(3), 64, text, VOCABULARY, d).tokens[-5:].tobytes() for d in (0.0, 0.5)}
    assert len(ends) == 1
