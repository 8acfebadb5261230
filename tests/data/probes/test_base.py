"""Ids that never move, marker numbers, and specs of probes."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extrapolate.data.probes.base import Vocabulary, parse_probe, parse_probes, probes
from extrapolate.data.probes.strings import Passkey


class Arithmetic:
    """A split whose tokens follow from arithmetic alone."""

    name = "made up"
    n_tokens = 2000

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.stream = (np.arange(2000) ** 2 * 7919 % vocabulary.size).astype(np.uint16)

    def slice(self, start: int, end: int) -> np.ndarray:
        return self.stream[start:end]


# Written down when there were four probes, whose markers came first in one list.
FOR_EVER = {
    Vocabulary(2048, 0): {
        "markers": {"copy": 1098, "mqar": 1377, "needle": 1900, "passkey": 1135},
        "symbols": [667, 2020, 857, 1533, 1668, 1725, 1140, 1696, 618, 350, 1175, 941, 1517, 1166, 1999, 1226],
        "keys": [1308, 1737, 570, 1626, 1959, 1728, 1100, 98, 557, 902, 1362, 1335, 213, 1052, 445, 1637],
        "64 symbols and keys": "3b4a70dc9b16ce7c",
        "windows": {
            "copy": "fa480067be49cf4c",
            "mqar": "c7ed1ebfce3caeb8",
            "needle": "b465076b00b2e9fc",
            "passkey": "1f5cef762daf1651",
            "(mqar:symbols=32,pairs=8)": "e976a25618e3c680",
            "passkey:length=2": "9bdb8e5993c50187",
        },
    },
    Vocabulary(300, 7): {
        "markers": {"copy": 36, "mqar": 291, "needle": 128, "passkey": 116},
        "symbols": [266, 0, 107, 272, 210, 5, 168, 140, 233, 70, 132, 148, 277, 209, 255, 41],
        "keys": [149, 162, 294, 205, 150, 229, 31, 185, 282, 155, 75, 39, 218, 206, 286, 215],
        "64 symbols and keys": "b719366701f794ac",
        "windows": {
            "copy": "b80fafd28cbe370d",
            "mqar": "9e9f8d76343d243b",
            "needle": "1f83585cfaa112aa",
            "passkey": "3252c4447e88686d",
            "(mqar:symbols=32,pairs=8)": "32b3a8913bcc92ce",
            "passkey:length=2": "7f707a45fe33d4c1",
        },
    },
}
TAKEN = {probes[name].marker for name in probes.names()}
FREE, NEXT_FREE, LATER_FREE = [number for number in range(100) if number not in TAKEN][:3]  # markers that no probe has
NEEDED = {"copy": 69, "mqar": 37, "needle": 21, "passkey": 21}


def ids_and_windows(vocabulary: Vocabulary) -> dict[str, object]:
    """Everything that a trained model knows of the first four probes, and the windows that it is evaluated on."""
    windows = {}
    for spec in FOR_EVER[vocabulary]["windows"]:
        probe, digest, text = parse_probes(spec)[0], hashlib.sha256(), Arithmetic(vocabulary)
        for length in (64, 256):
            for depth in (0.0, 0.5, 1.0):
                for array in probe.sequences(length, depth, 4, text, vocabulary):
                    digest.update(array.astype("<i8").tobytes())
        for seed in range(5):
            digest.update(probe.sequence(np.random.default_rng(seed), 64, text, vocabulary)[0].astype("<i8").tobytes())
        windows[spec] = digest.hexdigest()[:16]
    many = vocabulary.symbols(64).tobytes() + vocabulary.keys(64).tobytes()
    return {
        "markers": {name: vocabulary.marker(probes[name].marker) for name in NEEDED},
        "symbols": vocabulary.symbols(16).tolist(),
        "keys": vocabulary.keys(16).tolist(),
        "64 symbols and keys": hashlib.sha256(many).hexdigest()[:16],
        "windows": windows,
    }


@pytest.mark.parametrize("vocabulary", FOR_EVER, ids=str)
def test_ids_and_windows_are_the_same_for_ever(vocabulary: Vocabulary) -> None:
    """A trained model knows its markers, symbols and keys: they must not move."""
    assert ids_and_windows(vocabulary) == FOR_EVER[vocabulary]
    assert {name: parse_probe(name).vocabulary_needed for name in NEEDED} == NEEDED


@contextmanager
def more_probes(monkeypatch: pytest.MonkeyPatch, **numbers: int) -> Iterator[None]:
    """Probes with these names and marker numbers, registered for as long as this lasts."""
    with monkeypatch.context() as patched:
        patched.setattr(probes, "_classes", dict(probes._classes))
        for name, number in numbers.items():
            probes.register(name)(type("Another", (Passkey,), {"marker": number, "__module__": Passkey.__module__}))
        yield


@pytest.mark.parametrize("vocabulary", FOR_EVER, ids=str)
def test_more_probes_change_nothing(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    def fifth() -> list[list[int]]:
        return parse_probe("fifth").sequences(64, 0.5, 4, Arithmetic(vocabulary), vocabulary)[0].tolist()

    known = probes.names()
    with more_probes(monkeypatch, fifth=FREE):
        before = fifth()
    with more_probes(monkeypatch, fifth=FREE, eighth=LATER_FREE, sixth=NEXT_FREE):
        assert ids_and_windows(vocabulary) == FOR_EVER[vocabulary]
        assert fifth() == before
        assert [probe.name for probe in parse_probes("all")] == sorted([*known, "fifth", "sixth", "eighth"])
    assert probes.names() == known


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"marker": 2}, f"the probes 'needle' and 'fifth' both have marker number 2; the next free number is {FREE}"),
        ({}, f"the probe 'fifth' has no marker number: .* the next free number is {FREE}"),
    ],
)
def test_a_marker_number_is_a_probes_own(attributes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        probes.register("fifth")(
            type("Another", (Passkey,), {"marker": None, "__module__": Passkey.__module__} | attributes)
        )
    assert "fifth" not in probes.names()


@settings(deadline=None)  # a machine with other work is slow
@given(size=st.integers(140, 5000), eos=st.integers(0, 139), symbols=st.integers(2, 60))
def test_markers_symbols_and_keys_are_distinct_and_never_the_end_of_text(size: int, eos: int, symbols: int) -> None:
    vocabulary = Vocabulary(size, eos)
    ids = [*map(vocabulary.marker, range(8)), *vocabulary.symbols(symbols), *vocabulary.keys(symbols)]
    assert len(set(ids)) == len(ids) == 8 + 2 * symbols
    assert eos not in ids
    assert set(ids) <= set(range(size))


def test_a_spec_comes_back() -> None:
    assert [probe.text for probe in parse_probes("passkey, (mqar:pairs=8,symbols=32),needle:symbols=16")] == [
        "passkey", "mqar:symbols=32,pairs=8", "needle",
    ]  # fmt: skip
    assert [probe.text for probe in parse_probes("all")] == probes.names()
    assert len(parse_probes("needle,needle:symbols=16")) == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("paskey", "unknown probe 'paskey'; did you mean 'passkey'"),
        ("a5:symbols=24", "a5: symbols must be 60, the size of the group, not 24"),
        ("flip-flop:writes=1.1", r"flip-flop: writes must be between 0 and 1, not 1\.1"),
        ("needle:symbols=1", "symbols must be at least 2"),
        ("mqar:queries=5", "queries must be between 1 and 4, not 5"),
        ("digression:decoys=16", "decoys must be between 1 and 15, not 16"),
    ],
)
def test_bad_specs_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_probes(spec)
