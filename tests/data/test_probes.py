"""Sequences of probes: every answer can be read off the tokens, is where it should be, and is nowhere given away."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate.data import probes
from extrapolate.data.probes import MARKERS, Probe, Vocabulary, build, build_list

SPECS = ("needle", "passkey", "passkey:length=2", "copy", "mqar", "(mqar:pairs=6,queries=6)", "mqar:symbols=8")
ALL = [build_list(spec)[0] for spec in SPECS]


class Text:
    """A split whose stream is random tokens: every id is frequent, markers and keys too."""

    name = "made up"

    def __init__(self, vocabulary: Vocabulary, n_tokens: int = 2000) -> None:
        self.n_tokens = n_tokens
        self.stream = np.random.default_rng(5).integers(vocabulary.size, size=n_tokens).astype(np.uint16)
        self.before = self.stream.copy()

    def slice(self, start: int, end: int) -> np.ndarray:
        assert 0 <= start <= end <= self.n_tokens
        return self.stream[start:end]


def read(probe: Probe, tokens: np.ndarray, vocabulary: Vocabulary, at: int) -> int:
    """What a reader who knows the rules alone says comes at `at`, from the tokens before it."""
    marker = vocabulary.marker(probe.name)
    first, last = np.flatnonzero(tokens[:at] == marker)[[0, -1]]
    if probe.name == "mqar":
        asked = tokens[at - 1]
        return int(tokens[first + 1 : last][np.flatnonzero(tokens[first + 1 : last] == asked)[0] + 1])
    return int(tokens[first + at - last])


cases = given(
    probe=st.sampled_from(ALL),
    extra=st.integers(0, 200),
    size=st.integers(140, 3000),
    eos=st.integers(0, 139),
    seed=st.integers(0, 2**32),
    depth=st.none() | st.floats(0, 1),
)


@cases
@settings(max_examples=150, deadline=None)
def test_every_answer_can_be_read_and_no_other_place_tells(probe, extra, size, eos, seed, depth):
    vocabulary = Vocabulary(size, eos)
    length = probe.least() + extra
    probe.check(length, vocabulary)
    text = Text(vocabulary)
    tokens, answers = probe.sequence(np.random.default_rng(seed), length, text, vocabulary, depth)
    assert tokens.shape == (length + 1,)
    assert answers[-1] == length  # the last input predicts the last answer
    assert (np.diff(answers) > 0).all()
    for at in answers:
        assert read(probe, tokens, vocabulary, int(at)) == tokens[at]
        assert tokens[at] in vocabulary.symbols(probe.symbols)
    # The probe's marker twice, no other marker, and a key only in its pair and where it is asked for.
    count = [(tokens == vocabulary.marker(name)).sum() for name in MARKERS]
    assert count == [2 if name == probe.name else 0 for name in MARKERS]
    first, last = np.flatnonzero(tokens == vocabulary.marker(probe.name))
    if probe.name == "mqar":
        keys = tokens[first + 1 : first + 1 + 2 * probe.pairs : 2]
        assert len(set(keys)) == probe.pairs
        asked = tokens[last + 1 :: 2]
        assert len(set(asked)) == probe.queries
        for key in keys:
            assert (tokens == key).sum() == 1 + (key in asked)
    # What lies around is the text's own: a piece of it, in its order, but for what gave way.
    block = length + 1 - last if probe.name != "mqar" else 1 + 2 * probe.pairs
    around = np.concatenate([tokens[:first], tokens[first + block : last]])
    fits = [
        all(a in (b, eos) for a, b in zip(around, text.stream[start:], strict=False))
        for start in range(text.n_tokens - len(around) + 1)
    ]
    assert any(fits)
    assert (text.stream == text.before).all()


@cases
@settings(max_examples=100, deadline=None)
def test_depth_is_where_it_says(probe, extra, size, eos, seed, depth):
    vocabulary, length = Vocabulary(size, eos), probe.least() + extra
    tokens, _ = probe.sequence(np.random.default_rng(seed), length, Text(vocabulary), vocabulary, depth)
    first, last = np.flatnonzero(tokens == vocabulary.marker(probe.name))
    block = 1 + 2 * probe.pairs if probe.name == "mqar" else length + 1 - last
    assert first + block <= last
    if depth is not None:
        assert abs(first - depth * (last - block)) <= 0.5


def test_in_training_the_block_is_anywhere_and_copies_are_of_any_length():
    vocabulary, rng = Vocabulary(300, 7), np.random.default_rng(0)
    text = Text(vocabulary)
    for probe in ALL:
        windows = [probe.sequence(rng, 40, text, vocabulary) for _ in range(600)]
        marks = [np.flatnonzero(w.tokens == vocabulary.marker(probe.name)) for w in windows]
        assert min(first for first, _ in marks) == 0
        if probe.name == "copy":
            assert {len(w.answers) for w in windows} == set(range(1, 11))
            assert len({int(last - first) for first, last in marks}) > 20  # the distance is not constant either
        else:
            block = 1 + 2 * probe.pairs if probe.name == "mqar" else 41 - marks[0][1]
            assert {int(first) for first, _ in marks} == set(range(marks[0][1] - block + 1))


def test_where_a_depth_is_given_copies_are_as_long_as_they_get():
    vocabulary = Vocabulary(300, 7)
    for length in (4, 41, 640):
        made = build("copy").sequence(np.random.default_rng(0), length, Text(vocabulary), vocabulary, 0.5)
        assert len(made.answers) == length // 4


@pytest.mark.parametrize("probe", ALL, ids=SPECS)
def test_answers_are_uniform_so_that_chance_is_what_is_said(probe):
    vocabulary, rng = Vocabulary(300, 7), np.random.default_rng(1)
    text = Text(vocabulary)
    windows = [probe.sequence(rng, 40, text, vocabulary) for _ in range(1500)]
    answers = np.concatenate([w.tokens[w.answers] for w in windows])
    counts = np.array([(answers == symbol).sum() for symbol in vocabulary.symbols(probe.symbols)])
    assert counts.sum() == len(answers)
    expected = len(answers) / probe.symbols
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < probe.symbols + 4 * np.sqrt(2 * probe.symbols)  # four standard deviations of chi-squared
    each = 1 / probe.symbols
    assert probe.chance == pytest.approx(each ** (len(windows[0].answers) if probe.whole else 1))


@given(size=st.integers(140, 5000), eos=st.integers(0, 139), symbols=st.integers(2, 60))
def test_markers_symbols_and_keys_are_distinct_and_never_the_end_of_text(size, eos, symbols):
    vocabulary = Vocabulary(size, eos)
    ids = [*(vocabulary.marker(name) for name in MARKERS), *vocabulary.symbols(symbols), *vocabulary.keys(symbols)]
    assert len(set(ids)) == len(ids) == len(MARKERS) + 2 * symbols
    assert eos not in ids
    assert set(ids) <= set(range(size))


def test_markers_are_the_same_for_ever():
    """A trained model knows its markers: they must not move."""
    assert MARKERS[:4] == ("copy", "mqar", "needle", "passkey")
    vocabulary = Vocabulary(2048, 0)
    assert [vocabulary.marker(name) for name in MARKERS[:4]] == [1098, 1377, 1900, 1135]
    assert set(MARKERS) == set(probes.probes.names())


def test_what_is_evaluated_depends_on_the_probe_the_place_and_the_split_alone():
    vocabulary = Vocabulary(300, 7)
    text, other = Text(vocabulary), Text(vocabulary)
    other.name = "another"
    probe = build("passkey")
    few, places = probe.sequences(40, 0.5, 3, text, vocabulary)
    many, _ = probe.sequences(40, 0.5, 8, text, vocabulary)
    assert (few == many[:3]).all()
    assert places.tolist() == [37, 38, 39, 40]
    assert len({window.tobytes() for window in many}) == 8
    for changed in (probe.sequences(40, 0.75, 3, text, vocabulary), probe.sequences(40, 0.5, 3, other, vocabulary)):
        assert (changed[0] != few).any()


def test_a_spec_comes_back():
    assert [probe.text for probe in build_list("passkey, (mqar:pairs=8,symbols=32),needle:symbols=16")] == [
        "passkey", "mqar:symbols=32,pairs=8", "needle",
    ]  # fmt: skip
    assert [probe.text for probe in build_list("all")] == sorted(MARKERS)
    assert len(build_list("needle,needle:symbols=16")) == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("paskey", "unknown probe 'paskey'; did you mean 'passkey'"),
        ("passkey:lenght=3", "no argument 'lenght'; did you mean 'length'"),
        ("passkey:length=0", "length must be at least 1, not 0"),
        ("needle:symbols=1", "symbols must be at least 2"),
        ("mqar:queries=5", "queries must be between 1 and 4, not 5"),
        ("(mqar:pairs=80,queries=2)", "pairs must be between 1 and 16, not 80"),
        ("", "name at least one probe"),
    ],
)
def test_bad_specs_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        build_list(spec)


def test_what_does_not_fit_is_refused():
    for probe in ALL:
        probe.check(probe.least(), Vocabulary(probe.vocabulary_needed, 0))
        with pytest.raises(ValueError, match=f"takes at least {probe.least()} tokens, and a window has"):
            probe.check(probe.least() - 1, Vocabulary(300, 0))
        with pytest.raises(ValueError, match="vocabulary of at least"):
            probe.check(64, Vocabulary(probe.vocabulary_needed - 1, 0))
    vocabulary = Vocabulary(300, 0)
    build("needle").sequences(40, 0.0, 1, Text(vocabulary, 41), vocabulary)
    with pytest.raises(ValueError, match="has 40 tokens, which do not fill a window of 40"):
        build("needle").sequences(40, 0.0, 1, Text(vocabulary, 40), vocabulary)
