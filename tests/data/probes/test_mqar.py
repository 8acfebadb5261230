"""Multi-query associative recall: pairs of keys and values, of which some are asked for."""

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probes


@pytest.mark.parametrize(
    "spec", ["mqar", "(mqar:pairs=6,queries=6)", "mqar:symbols=8", "(mqar:pairs=30,queries=1,symbols=60)"]
)
@pytest.mark.parametrize("depth", [None, 0.0, 0.3, 1.0])
def test_every_answer_is_its_keys_value(text_in, spec, depth):
    vocabulary, probe = Vocabulary(300, 7), parse_probes(spec)[0]
    text = text_in(vocabulary)
    for seed in range(40):
        tokens, answers = probe.sequence(np.random.default_rng(seed), 64, text, vocabulary, depth)
        first, last = np.flatnonzero(tokens == vocabulary.marker(probe.marker))
        pairs = tokens[first + 1 : first + 1 + 2 * probe.pairs].reshape(-1, 2)
        values = dict(pairs.tolist())
        assert len(values) == probe.pairs  # the keys differ
        assert set(values) <= set(vocabulary.keys(probe.symbols).tolist())
        assert answers.tolist() == list(range(last + 2, 65, 2))
        asked = tokens[answers - 1].tolist()
        assert len(set(asked)) == len(asked) == probe.queries
        assert [values[key] for key in asked] == tokens[answers].tolist()
        for key in values:
            assert (tokens == key).sum() == 1 + (key in asked)


@pytest.mark.parametrize("pairs", [8, 64, 256])
def test_one_key_of_many_is_asked_and_its_chance_is_that_of_its_window(text_in, pairs):
    """The tokens are the same for every number of pairs: one model is evaluated on all of them."""
    vocabulary = Vocabulary(2048, 0)
    probe = parse_probes(f"(mqar:pairs={pairs},queries=1,symbols=256)")[0]
    assert probe.least() == 2 * (pairs + 1) + 1
    tokens, answers = probe.sequences(1024, 0.5, 40, text_in(vocabulary), vocabulary)
    candidates, places = probe.candidates(tokens, vocabulary), []
    for window, found in zip(tokens, candidates, strict=True):
        first, last = np.flatnonzero(window == vocabulary.marker(1))
        block = window[first + 1 : first + 1 + 2 * pairs].tolist()
        keys, values = block[::2], block[1::2]
        assert (last, answers.tolist()) == (1022, [1024])
        assert values[keys.index(window[1023])] == window[1024]
        assert sorted(set(values)) == sorted(found[found >= 0].tolist())
        assert set(keys) <= set(vocabulary.keys(256).tolist())
        places.append(keys.index(window[1023]))
    assert len(set(places)) > 6, "the key's place tells which one is asked for"
