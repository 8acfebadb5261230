"""Multi-query associative recall: pairs of keys and values, of which some are asked for."""

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probes


@pytest.mark.parametrize("spec", ["mqar", "(mqar:pairs=6,queries=6)", "mqar:symbols=8"])
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
