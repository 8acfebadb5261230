"""Flip-flop: the answer is the bit of the last write, which is as far back as the depth says."""

import numpy as np
import pytest

from extrapolate.data.probes.base import Vocabulary, parse_probe

VOCABULARY = Vocabulary(300, 7)


def remembered(tokens: np.ndarray, symbols: int = 2) -> tuple[int, int, list[int]]:
    """By going through the commands: the last bit written, how many pairs it is before the read, the writes' places."""
    write, ignore = VOCABULARY.keys(symbols)[:2].tolist()
    bits, pairs = VOCABULARY.symbols(symbols).tolist(), tokens[:-2].tolist()
    if len(pairs) % 2:
        assert pairs.pop(0) == VOCABULARY.eos
    memory, writes = None, []
    for place in range(0, len(pairs), 2):
        command, bit = pairs[place : place + 2]
        assert bit in bits
        assert command in (write, ignore)
        if command == write:
            memory, writes = bit, [*writes, place // 2]
    assert memory is not None
    assert tokens[-2] == VOCABULARY.marker(6)
    return memory, len(pairs) // 2 - writes[-1], writes


@pytest.mark.parametrize("length", [3, 4, 63, 64, 257])
@pytest.mark.parametrize("spec", ["flip-flop", "flip-flop:writes=0.7", "flip-flop:symbols=5"])
def test_the_answer_is_the_bit_of_the_last_write_which_is_at_the_depth(text_in, length, spec):
    probe, text, count = parse_probe(spec), text_in(VOCABULARY), (length - 1) // 2
    for depth in (0.0, 0.25, 0.5, 1.0):
        for seed in range(20):
            tokens, answers = probe.sequence(np.random.default_rng(seed), length, text, VOCABULARY, depth)
            assert (len(tokens), answers.tolist()) == (length + 1, [length])
            memory, distance, writes = remembered(tokens, probe.symbols)
            assert tokens[-1] == memory
            assert abs((count - distance) - depth * (count - 1)) <= 0.5
            assert writes == [0] or depth > 0


def test_in_training_the_last_write_is_anywhere_and_earlier_ones_are_as_frequent_as_said(text_in):
    text, probe = text_in(VOCABULARY), parse_probe("flip-flop")
    distances, early, before, ignored, same = [], 0, 0, [], 0
    for seed in range(2000):
        tokens, _ = probe.sequence(np.random.default_rng(seed), 64, text, VOCABULARY)
        memory, distance, writes = remembered(tokens)
        distances.append(distance)
        early, before = early + len(writes) - 1, before + 31 - distance
        if distance > 1:
            ignored += tokens[-2 * distance + 1 : -2 : 2].tolist()
            same += int(tokens[-3] == memory)
    counts = np.bincount(distances, minlength=32)[1:]
    assert len(counts) == 31
    assert (abs(counts - 2000 / 31) < 5 * (2000 / 31) ** 0.5).all()
    assert early / before == pytest.approx(0.1, abs=0.01)
    assert np.mean(np.array(ignored) == VOCABULARY.symbols(2)[0]) == pytest.approx(0.5, abs=0.02)
    assert same / (2000 - counts[0]) == pytest.approx(0.5, abs=0.05), "the last ignored bit tells the answer"
