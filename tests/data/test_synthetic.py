"""Text with a known optimum: the optimum against slow references, and the store that such text makes."""

import math
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from extrapolate.data.sources import open_source
from extrapolate.data.store import Store, StoreSettings
from extrapolate.data.store import build as build_store
from extrapolate.data.synthetic import Echo, Markov, Process, build
from extrapolate.data.tokenizer import token_bytes


class TestMarkov:
    def test_the_optimum_is_the_urn_of_every_row(self) -> None:
        """In fractions, token by token: so many of j after i, and the prior's weight, of all after i."""
        process = Markov(states=3, concentration=0.5, documents=3, length=50)
        tokens = np.random.default_rng(0).integers(0, 3, (4, 20))
        for window, found in zip(tokens.tolist(), process.optimum(tokens), strict=True):
            for t in range(1, len(window)):
                pairs = list(pairwise(window[:t]))
                after = [b for a, b in pairs if a == window[t - 1]]
                p = (after.count(window[t]) + Fraction(1, 2)) / (len(after) + Fraction(3, 2))
                assert found[t - 1] == pytest.approx(-math.log(p), abs=1e-12)

    def test_it_is_the_mean_over_posterior_chains(self) -> None:
        """By sampling: chains from the prior, weighed by how well they explain what came before."""
        process = Markov(states=2, concentration=0.7, documents=3, length=50)
        rng = np.random.default_rng(0)
        rows = rng.dirichlet([0.7, 0.7], size=(400_000, 2))
        window = [0, 1, 1, 0, 1, 0, 0]
        found = process.optimum(np.array([window]))[0]
        weight = np.ones(len(rows))
        for t in range(1, len(window)):
            p = rows[:, window[t - 1], window[t]]
            assert found[t - 1] == pytest.approx(-math.log((weight * p).sum() / weight.sum()), abs=0.01)
            weight *= p

    def test_the_published_decline(self) -> None:
        """16 states, concentration 0.3: about 2.55 nats a token over windows of 64, about 2.06 over 1024."""
        process = build("markov:states=16,concentration=0.3")
        documents = process.draw(np.random.default_rng(0), 64)
        mean = {n: process.optimum(documents[:, : n + 1]).mean() for n in (64, 1024)}
        assert mean[64] == pytest.approx(2.55, abs=0.03)
        assert mean[1024] == pytest.approx(2.06, abs=0.03)

    def test_how_much_the_first_token_could_tell(self) -> None:
        """What a chain's long-run shares tell of its rows, and so a token about the rest of a window: 0.1 nats."""
        rng = np.random.default_rng(0)
        information = []
        for _ in range(400):
            rows = rng.dirichlet(np.full(16, 0.3), size=16)
            shares = np.linalg.matrix_power(rows, 1000)[0]
            information.append(np.sum(shares * np.log(np.maximum(shares, 1e-300) * 16)))
        assert np.mean(information) == pytest.approx(0.098, abs=0.006)

    def test_no_other_prior_predicts_better(self) -> None:
        documents = Markov().draw(np.random.default_rng(0), 64)[:, :257]
        best = Markov().optimum(documents).mean(axis=1)
        for other in (0.1, 0.9):
            worse = Markov(concentration=other).optimum(documents).mean(axis=1) - best
            assert worse.mean() > 4 * worse.std() / 8

    def test_chains_differ_between_documents_and_follow_their_rows(self) -> None:
        documents = Markov(states=4, length=4000).draw(np.random.default_rng(0), 2)
        counts = np.zeros((2, 4, 4))
        for d in range(2):
            np.add.at(counts[d], (documents[d, :-1], documents[d, 1:]), 1)
        rows = counts / counts.sum(axis=-1, keepdims=True)
        assert np.abs(rows[0] - rows[1]).max() > 0.2
        halves = [np.zeros((4, 4)), np.zeros((4, 4))]
        for half, part in zip(halves, np.split(documents[0], 2), strict=True):
            np.add.at(half, (part[:-1], part[1:]), 1)
        often = counts[0].sum(axis=1) > 400
        first, second = (half[often] / half[often].sum(axis=-1, keepdims=True) for half in halves)
        assert np.abs(first - second).max() < 0.12


class TestEcho:
    def test_the_optimum_weighs_every_lag(self) -> None:
        """The probability of each prefix is the mean over lags of a product of steps, in fractions."""
        process = Echo(states=2, shortest=1, longest=4, noise=0.25, documents=3, length=50)
        assert process.lags == [1, 2, 4]

        def prefix(window: tuple[int, ...]) -> Fraction:
            total = Fraction(0)
            for lag in (1, 2, 4):
                p = Fraction(1)
                for t, token in enumerate(window):
                    same = Fraction(3, 4) * (token == window[t - lag]) if t >= lag else None
                    p *= Fraction(1, 2) if same is None else same + Fraction(1, 8)
                total += p / 3
            return total

        windows = list(product((0, 1), repeat=6))
        assert sum(map(prefix, windows)) == 1
        for window, found in zip(windows, process.optimum(np.array(windows)), strict=True):
            for t in range(1, 6):
                assert found[t - 1] == pytest.approx(-math.log(prefix(window[: t + 1]) / prefix(window[:t])), abs=1e-12)

    def test_a_window_no_longer_than_every_lag_holds_nothing(self) -> None:
        process = Echo(shortest=64, longest=128)
        documents = process.draw(np.random.default_rng(0), 8)
        assert process.optimum(documents[:, 300:364]) == pytest.approx(math.log(16))
        assert process.optimum(documents[:, 300:700])[:, -100:].mean() < 1.0

    def test_documents_repeat_at_one_lag(self) -> None:
        process = Echo(longest=128, noise=0.1, length=4000)
        for document in process.draw(np.random.default_rng(1), 4):
            same = [np.mean(document[lag:] == document[:-lag]) for lag in process.lags]
            own = int(np.argmax(same))
            assert same[own] == pytest.approx(0.9 + 0.1 / 16, abs=0.02)
            assert np.max(same[:own], initial=0) < 0.2  # multiples of the lag repeat too


@pytest.mark.parametrize("spec", ["markov:states=5,documents=40,length=300", "echo:states=16,documents=40,length=300"])
def test_a_store_has_a_token_for_every_state(spec: str, tmp_path: Path) -> None:
    source = open_source(f"synthetic:{spec}")
    assert isinstance(source, Process)
    store = build_store(source, StoreSettings(source=f"synthetic:{spec}"), tmp_path / "store")
    assert store.vocab_size == source.states + 1
    drawn = {document.id: document.text for document in source}
    assert len(set(drawn.values())) == 40
    alphabet = sorted({letter for text in drawn.values() for letter in text})
    for name in ("train", "validation", "test"):
        split = store.split(name)
        assert len(split.ids) > 0
        assert split.lengths.tolist() == [300] * len(split.ids)
        for row, key in enumerate(split.ids):
            tokens = split.slice(split.offsets[row], split.offsets[row + 1]).tolist()
            assert tokens == [*(alphabet.index(letter) for letter in drawn[key]), source.states]
    assert token_bytes(store.tokenizer()) is None  # a token is a byte all the same: documents' means are exact
    assert Store.open(tmp_path / "store").corpus_hash == store.corpus_hash


def test_one_seed_one_text() -> None:
    texts = {seed: [d.text for d in build(f"markov:documents=3,length=20,seed={seed}")] for seed in (0, 1)}
    assert texts[0] == [d.text for d in build("markov:documents=3,length=20")]
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("markof", "did you mean 'markov'"),
        ("markov:state=4", "did you mean 'states'"),
        ("markov:states=1", "2 to 62 states"),
        ("markov:concentration=0", "more than 0"),
        ("markov:documents=1", "at least 3 documents"),
        ("echo:noise=1", "between 0 and 1"),
        ("echo:shortest=9,longest=8", "shortest <= longest"),
        ("echo:longest=2000", "< length"),
    ],
)
def test_what_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_source(f"synthetic:{spec}")


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    spec = "synthetic:markov:documents=8,length=20"
    with pytest.raises(ValueError, match="leave --tokenizer out"):
        build_store(open_source(spec), StoreSettings(source=spec, tokenizer="other.json"), tmp_path / "store")
