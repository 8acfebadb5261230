"""Reverse, sort and addition: every answer against one found the plain way, from the window's tokens alone."""

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probe

VOCABULARY = Vocabulary(300, 7)


def problems(spec: str, length: int, count: int = 60) -> list[tuple[list[int], list[int]]]:
    """The numbers of the symbols of problems and of their answers; -1 is the first key."""
    probe, found = parse_probe(spec), []
    number = {token: place for place, token in enumerate(VOCABULARY.symbols(probe.symbols).tolist())}
    number[int(VOCABULARY.keys(probe.symbols)[0])] = -1
    for seed in range(count):
        tokens, answers = probe.sequence(np.random.default_rng(seed), length, None, VOCABULARY, seed % 2 or None)
        first, last = np.flatnonzero(tokens == VOCABULARY.marker(probe.marker))
        assert answers.tolist() == list(range(last + 1, length + 1))
        assert (tokens[:first] == VOCABULARY.eos).all()
        assert first < 3 or not seed % 2  # in evaluation the problem fills the window
        found.append(([number[token] for token in tokens[first + 1 : last].tolist()],
                      [number[token] for token in tokens[answers].tolist()]))  # fmt: skip
    return found


@pytest.mark.parametrize("length", [3, 4, 33, 90])
def test_a_string_comes_back_from_its_end(length):
    for string, answer in problems("reverse", length):
        assert answer == [string[-1 - place] for place in range(len(string))]


@pytest.mark.parametrize(("spec", "length"), [("sort", 3), ("sort", 33), ("sort:symbols=40", 60)])
def test_sorting_moves_the_smallest_out_each_time(spec, length):
    for rest, answer in problems(spec, length):
        for smallest in answer:
            assert smallest == min(rest)
            rest.remove(smallest)
        assert rest == []


@pytest.mark.parametrize("base", [10, 2])
@pytest.mark.parametrize("lowest_first", [False, True])
@pytest.mark.parametrize("length", [5, 40, 61])
def test_sums_are_those_of_whole_numbers_without_the_last_carry(length, lowest_first, base):
    def value(digits: list[int]) -> int:
        return sum(digit * base**place for place, digit in enumerate(digits if lowest_first else digits[::-1]))

    carried = 0
    for tokens, answer in problems(f"(addition:symbols={base},lowest_first={lowest_first})".strip("()"), length):
        plus = tokens.index(-1)
        first, second = tokens[:plus], tokens[plus + 1 :]
        assert len(first) == len(second) == len(answer)
        total = value(first) + value(second)
        assert value(answer) == total % base ** len(answer)
        carried += total >= base ** len(answer)
    assert carried > 5


@pytest.mark.parametrize(
    ("spec", "answers"),
    [
        ("reverse", {3: 1, 4: 1, 5: 2, 64: 31, 1024: 511}),
        ("sort", {3: 1, 64: 31}),
        ("addition", {5: 1, 7: 1, 8: 2, 62: 20}),
    ],
)
def test_a_window_is_right_with_all_answers_so_chance_falls_with_its_length(spec, answers):
    probe = parse_probe(spec)
    assert probe.whole
    assert probe.least() == min(answers)
    for length, count in answers.items():
        _, places = probe.sequences(length, 1.0, 2, Plenty, VOCABULARY)
        assert len(places) == count
        assert probe.chance_at(length) == pytest.approx(float(probe.symbols) ** -count)


class Plenty:
    """A split that is long enough, and never read."""

    name, n_tokens = "unread", 10_000
