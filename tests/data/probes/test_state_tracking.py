"""State tracking: every answer against the state found step by step, from the window's tokens alone."""

import itertools

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probe

VOCABULARY = Vocabulary(300, 7)


def problems(spec: str, length: int = 18, count: int = 60) -> list[tuple[list[int], list[int]]]:
    """The numbers of the symbols of problems and of their answers; a key has a negative number, from -1 on."""
    probe, found = parse_probe(spec), []
    symbols, keys = VOCABULARY.symbols(probe.symbols).tolist(), VOCABULARY.keys(probe.symbols).tolist()
    number = {token: place for place, token in enumerate(symbols)}
    number |= {token: -1 - place for place, token in enumerate(keys)}
    for seed in range(count):
        tokens, answers = probe.sequence(np.random.default_rng(seed), length, None, VOCABULARY, seed % 2 or None)
        first, last = np.flatnonzero(tokens == VOCABULARY.marker(probe.marker))
        assert answers.tolist() == list(range(last + 1, length + 1))
        assert (tokens[:first] == VOCABULARY.eos).all()
        found.append(([number[token] for token in tokens[first + 1 : last].tolist()],
                      [number[token] for token in tokens[answers].tolist()]))  # fmt: skip
    return found


@pytest.mark.parametrize(("spec", "modulus"), [("parity", 2), ("parity:symbols=7", 7)])
def test_parity_flips_at_every_one(spec, modulus):
    for digits, answer in problems(spec):
        state = 0
        for digit in digits:
            for _ in range(digit):
                state = 0 if state == modulus - 1 else state + 1
        assert answer == [state]


@pytest.mark.parametrize(("spec", "modulus"), [("arithmetic", 5), ("arithmetic:symbols=3", 3)])
def test_an_expression_has_the_value_that_python_finds(spec, modulus):
    seen = set()
    for tokens, answer in problems(spec):
        assert all(token >= 0 for token in tokens[::2])
        expression = "".join({-1: "+", -2: "-", -3: "*"}.get(token, str(token)) for token in tokens)
        assert answer == [eval(expression) % modulus], expression
        seen |= set(expression)
    assert seen == {*"+-*", *map(str, range(modulus))}


def test_a_product_of_even_permutations_moves_five_things_in_turn():
    """Things are moved place by place; the elements are in the order of their lists, the identity first."""
    elements = [p for p in itertools.permutations(range(5)) if round(np.linalg.det(np.eye(5)[list(p)])) == 1]
    assert len(elements) == 60
    order_matters = 0
    for word, answer in problems("a5"):
        things = list("abcde")
        for element in word:
            moved = [""] * 5
            for place, goes_to in enumerate(elements[element]):
                moved[goes_to] = things[place]
            things = moved
        whole = elements[answer[0]]
        assert all(things[goes_to] == "abcde"[place] for place, goes_to in enumerate(whole))
        order_matters += len(word) > 1
    assert order_matters > 30


@pytest.mark.parametrize(
    ("spec", "sizes"), [("parity", range(1, 17)), ("a5", range(1, 17)), ("arithmetic", range(1, 17, 2))]
)
def test_problems_have_every_size_in_training_and_fill_the_window_in_evaluation(spec, sizes):
    drawn = [len(problem) for problem, _ in problems(spec, 18, 400)]  # odd seeds are evaluated
    assert set(drawn[::2]) == set(sizes)
    assert set(drawn[1::2]) == {max(sizes)}
    counts = np.unique(drawn[::2], return_counts=True)[1]
    assert counts.min() > len(drawn[::2]) / len(sizes) / 4
