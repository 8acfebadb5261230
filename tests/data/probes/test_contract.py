"""What holds for every probe there is: where its parts are, what the text keeps clear of, chance, what it needs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate.data.probes.base import Probe, Vocabulary, parse_probes, probes

SPECS = (
    *probes.names(), "passkey:length=2", "(mqar:pairs=6,queries=6)", "mqar:symbols=8", "(tracking:hops=3,chains=1)",
    "frequent:top=3", "(mqar:pairs=9,queries=1,symbols=40)", "digression:decoys=3", "flip-flop:writes=0.5",
    "addition:lowest_first=true",
)  # fmt: skip
ALL = [parse_probes(spec)[0] for spec in SPECS]
LAID = [probe for probe in ALL if type(probe).sequence is Probe.sequence]  # into text; others fill the window

cases = given(
    probe=st.sampled_from(LAID),
    extra=st.integers(0, 200),
    size=st.integers(140, 3000),
    eos=st.integers(0, 139),
    seed=st.integers(0, 2**32),
    depth=st.none() | st.floats(0, 1),
)


@cases
@settings(max_examples=150, deadline=None)
def test_the_parts_are_in_the_text_and_no_other_place_tells(text_in, probe, extra, size, eos, seed, depth):
    vocabulary = Vocabulary(size, eos)
    length = probe.least() + extra
    probe.check(length, vocabulary)
    text = text_in(vocabulary)
    tokens, answers = probe.sequence(np.random.default_rng(seed), length, text, vocabulary, depth)
    parts = probe.parts(np.random.default_rng(seed), length, vocabulary, depth is not None)  # drawn before all else
    assert tokens.shape == (length + 1,)
    assert answers[-1] == length  # the last input predicts the last answer
    assert (np.diff(answers) > 0).all()
    assert np.isin(tokens[answers], vocabulary.symbols(probe.symbols)).all()
    # The probe's marker twice, none of the first ones, and a key only in its parts.
    first, last = np.flatnonzero(tokens == vocabulary.marker(probe.marker))
    assert not np.isin(tokens, [vocabulary.marker(m) for m in range(4) if m != probe.marker]).any()
    assert (tokens[first : first + len(parts.block)] == parts.block).all()
    assert (tokens[last:] == parts.question).all()
    assert (answers == last + parts.answers).all()
    asking = np.delete(parts.question, parts.answers)
    assert not np.isin(asking, parts.question[parts.answers]).any()
    assert not np.isin(asking, vocabulary.symbols(probe.symbols)).any() or probe.name == "digression"  # has decoys
    around = np.concatenate([tokens[:first], tokens[first + len(parts.block) : last]])
    assert not np.isin(around, parts.keys).any()
    # What lies around is the text's own: a piece of it, in its order, but for what gave way.
    pieces = np.lib.stride_tricks.sliding_window_view(text.stream, len(around))
    assert ((pieces == around) | (around == eos)).all(axis=1).any()
    assert (text.stream == text.before).all()
    # Depth is where it says.
    if depth is not None:
        assert abs(first - depth * (last - len(parts.block))) <= 0.5


@pytest.mark.parametrize("probe", LAID, ids=lambda probe: probe.text)
def test_in_training_the_block_is_anywhere(text_in, probe):
    vocabulary = Vocabulary(300, 7)
    text = text_in(vocabulary)
    places, rooms, distances = set(), set(), set()
    for seed in range(300):
        parts = probe.parts(np.random.default_rng(seed), 40, vocabulary, False)
        made = probe.sequence(np.random.default_rng(seed), 40, text, vocabulary)
        first, last = np.flatnonzero(made.tokens == vocabulary.marker(probe.marker)).tolist()
        places.add(first)
        rooms.add(41 - len(parts.block) - len(parts.question))
        distances.add(last - first)
    assert len(distances) > 15  # the distance is not constant either
    assert min(places) == 0
    if len(rooms) == 1:
        assert places == set(range(rooms.pop() + 1))


@pytest.mark.parametrize("probe", ALL, ids=SPECS)
def test_answers_are_uniform_so_that_chance_is_what_is_said(text_in, probe):
    vocabulary, rng = Vocabulary(300, 7), np.random.default_rng(1)
    text = text_in(vocabulary)
    windows = [probe.sequence(rng, 40, text, vocabulary) for _ in range(1500)]
    answers = np.concatenate([w.tokens[w.answers] for w in windows])
    counts = np.array([(answers == symbol).sum() for symbol in vocabulary.symbols(probe.symbols)])
    assert counts.sum() == len(answers)
    expected = len(answers) / probe.symbols
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < probe.symbols + 4 * np.sqrt(2 * probe.symbols)  # four standard deviations of chi-squared
    each, evaluated = 1 / probe.symbols, probe.sequences(40, 0.0, 1, text, vocabulary)[1]
    assert probe.chance_at(40) == pytest.approx(each ** (len(evaluated) if probe.whole else 1))


@pytest.mark.parametrize("probe", ALL, ids=SPECS)
def test_what_does_not_fit_is_refused(text_in, probe):
    probe.check(probe.least(), Vocabulary(probe.vocabulary_needed, 0))
    with pytest.raises(ValueError, match=f"takes at least {probe.least()} tokens, and a window has"):
        probe.check(probe.least() - 1, Vocabulary(300, 0))
    with pytest.raises(ValueError, match="vocabulary of at least"):
        probe.check(64, Vocabulary(probe.vocabulary_needed - 1, 0))
    vocabulary = Vocabulary(300, 0)
    probe.sequences(40, 0.0, 1, text_in(vocabulary, 41), vocabulary)
    with pytest.raises(ValueError, match="has 40 tokens, which do not fill a window of 40"):
        probe.sequences(40, 0.0, 1, text_in(vocabulary, 40), vocabulary)


@pytest.mark.parametrize("probe", ALL, ids=SPECS)
def test_candidates_are_different_symbols_and_the_answers_among_them(text_in, probe):
    vocabulary = Vocabulary(300, 7)
    tokens, answers = probe.sequences(64, 0.3, 9, text_in(vocabulary), vocabulary)
    candidates = probe.candidates(tokens, vocabulary)
    assert len(candidates) == 9
    for found, window in zip(candidates, tokens, strict=True):
        known = found[found >= 0].tolist()
        assert len(set(known)) == len(known)
        assert set(window[answers].tolist()) <= set(known) <= set(vocabulary.symbols(probe.symbols).tolist())
        assert (found[len(known) :] == -1).all()


def test_what_is_evaluated_depends_on_the_probe_the_place_and_the_split_alone(text_in):
    vocabulary = Vocabulary(300, 7)
    text, other = text_in(vocabulary), text_in(vocabulary)
    other.name = "another"
    for probe in ALL:
        few, places = probe.sequences(40, 0.5, 3, text, vocabulary)
        many, _ = probe.sequences(40, 0.5, 8, text, vocabulary)
        assert (few == many[:3]).all()
        assert places[-1] == 40
        assert len({window.tobytes() for window in many}) == 8
        for changed in (probe.sequences(40, 0.75, 3, text, vocabulary), probe.sequences(40, 0.5, 3, other, vocabulary)):
            assert (changed[0] != few).any()
