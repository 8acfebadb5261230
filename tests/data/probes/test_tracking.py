"""Variable tracking: a chain of assignments leads from the variable asked for to its value."""

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probes


@pytest.mark.parametrize("spec", ["tracking", "(tracking:hops=3,chains=1)", "(tracking:hops=1,chains=4)"])
@pytest.mark.parametrize("depth", [None, 0.0, 0.7])
def test_the_answer_is_where_the_chain_of_assignments_ends(text_in, spec, depth):
    vocabulary, probe = Vocabulary(300, 7), parse_probes(spec)[0]
    text, asked_of, orders = text_in(vocabulary), set(), set()
    symbols = set(vocabulary.symbols(probe.symbols).tolist())
    for seed in range(40):
        tokens, answers = probe.sequence(np.random.default_rng(seed), 64, text, vocabulary, depth)
        first, last = np.flatnonzero(tokens == vocabulary.marker(probe.marker))
        assignments = tokens[first + 1 : first + 1 + 2 * probe.chains * (probe.hops + 1)].reshape(-1, 2).tolist()
        given: dict[int, int] = {}
        for variable, value in assignments:
            assert variable not in given, "a variable is assigned twice"
            assert value in symbols or value in given, "it is assigned what is not known yet"
            given[variable] = value
        assert len(given) == probe.chains * (probe.hops + 1)
        assert answers.tolist() == [64] == [last + 2]
        at, hops = int(tokens[last + 1]), 0
        while at not in symbols:
            at, hops = given[at], hops + 1
        assert (at, hops) == (tokens[64], probe.hops + 1)
        ends = [variable for variable in given if variable not in given.values()]
        assert len(ends) == probe.chains
        asked_of.add(ends.index(int(tokens[last + 1])))
        orders.add(tuple(value in symbols for _, value in assignments))
    assert asked_of == set(range(probe.chains)), "the place of a chain's end tells which one is asked for"
    assert len(orders) > 1 or probe.chains == 1, "chains are not mixed"
