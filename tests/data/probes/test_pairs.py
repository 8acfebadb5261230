"""Probes of keys and values: recall, return from a digression, and variable tracking."""

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probe, parse_probes

VOCABULARY = Vocabulary(300, 7)


@pytest.mark.parametrize(
    "spec", ["mqar", "(mqar:pairs=6,queries=6)", "mqar:symbols=8", "(mqar:pairs=30,queries=1,symbols=60)"]
)
@pytest.mark.parametrize("depth", [None, 0.0, 0.3, 1.0])
def test_every_answer_is_its_keys_value(text_in, spec, depth):
    probe, text = parse_probes(spec)[0], text_in(VOCABULARY)
    for seed in range(40):
        tokens, answers = probe.sequence(np.random.default_rng(seed), 64, text, VOCABULARY, depth)
        first, last = np.flatnonzero(tokens == VOCABULARY.marker(probe.marker))
        pairs = tokens[first + 1 : first + 1 + 2 * probe.pairs].reshape(-1, 2)
        values = dict(pairs.tolist())
        assert len(values) == probe.pairs  # the keys differ
        assert set(values) <= set(VOCABULARY.keys(probe.symbols).tolist())
        assert answers.tolist() == list(range(last + 2, 65, 2))
        asked = tokens[answers - 1].tolist()
        assert len(set(asked)) == len(asked) == probe.queries
        assert [values[key] for key in asked] == tokens[answers].tolist()
        for key in values:
            assert (tokens == key).sum() == 1 + (key in asked)


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


@pytest.mark.parametrize("spec", ["tracking", "(tracking:hops=3,chains=1)", "(tracking:hops=1,chains=4)"])
@pytest.mark.parametrize("depth", [None, 0.0, 0.7])
def test_the_answer_is_where_the_chain_of_assignments_ends(text_in, spec, depth):
    probe, text = parse_probes(spec)[0], text_in(VOCABULARY)
    asked_of, orders = set(), set()
    symbols = set(VOCABULARY.symbols(probe.symbols).tolist())
    for seed in range(40):
        tokens, answers = probe.sequence(np.random.default_rng(seed), 64, text, VOCABULARY, depth)
        first, last = np.flatnonzero(tokens == VOCABULARY.marker(probe.marker))
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
