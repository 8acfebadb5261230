"""No model beats the optimum, unless it sees what it predicts."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from extrapolate.data.build import StoreSettings, build_store
from extrapolate.data.store import Store
from extrapolate.data.synthetic.base import parse_process
from extrapolate.evaluation.lengths import evaluate
from extrapolate.evaluation.optimum import optimal_losses, process_of
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.evaluation.settings import EvaluationSettings
from extrapolate.evaluation.targets import Targets
from extrapolate.evaluation.work import work_of
from extrapolate.model import attention
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run
from extrapolate.statistics.comparison import OPTIMUM, Comparison, below_optimum, comparable_rows, comparisons
from extrapolate.training.job import TrainingJob
from extrapolate.training.loop import train

L = 16
FACTORS = (1, 2, 4)
SPECS = {
    "markov": "markov:states=4,concentration=0.3,documents=600,length=130",
    "echo": "echo:states=4,shortest=4,longest=32,documents=600,length=130",
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    folder = tmp_path_factory.mktemp("synthetic")
    return {
        name: build_store(parse_process(spec), StoreSettings(source=f"synthetic:{spec}"), folder / name)
        for name, spec in SPECS.items()
    }


def trained(store: Store, pe: str, folder: Path, steps: int = 200) -> Run:
    """A run of a few seconds, which learns what its text is like."""
    sizes = {"width": 32, "layers": 2, "heads": 2, "head_dim": 16, "ff_width": 64}
    training = {
        "seq_len": L, "tokens": steps * 2048, "batch_tokens": 2048, "lr": 1e-2, "precision": "fp32", "compile": False,
    }  # fmt: skip
    config, _ = resolve(TrainingRequest(pe=pe, model=sizes, training=training), store)
    return train(TrainingJob(config, store, folder / pe))


def against_optimum(run: Run, store: Store, most: int = 8192) -> tuple[pd.DataFrame, list[Comparison]]:
    """The difference to the optimum and its interval, for every protocol and factor; and what is surely below it."""
    settings = EvaluationSettings(factors=FACTORS, protocols=tuple(protocols.names()), max_targets=most)
    pieces = list(evaluate(work_of(run, store, settings)))
    evals, documents = (pd.DataFrame([row for piece in pieces for row in piece[i]]) for i in (0, 1))
    rows, _ = comparable_rows(evals, documents, False)
    compared = list(comparisons(rows))
    for length, mine in evals[evals["protocol"] == "sliding"].groupby("length"):
        groups = settings.layout("sliding", store.split("test"), L).rows[length]
        own = optimal_losses(process_of(store), store.split("test"), groups)
        assert mine["optimum_loss"].item() == pytest.approx(own.mean(), abs=1e-9)
    found = pd.DataFrame([one.row() for one in compared if one.other == OPTIMUM])
    return found, below_optimum(compared)


def test_a_trained_model_never_beats_it(stores: dict[str, Store], tmp_path: Path) -> None:
    """At any length, under any protocol, beyond the interval: it would mean a leak."""
    store = stores["markov"]
    found, below = against_optimum(trained(store, "alibi", tmp_path), store)
    assert len(found) == len(protocols.names()) * len(FACTORS)
    assert not found["verdict"].str.startswith("better").any(), found
    assert below == []
    assert set(found["cluster"]) == {"documents"}


def test_a_shifted_mask_is_caught(stores: dict[str, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask that lets every query see the next token too: the trained model is below the optimum at every length.

    The last token of a window has none ahead, and a model that has come to rely on it predicts that one very badly:
    of the eight targets that fixed-target scores in a window it is one, so that only `windows` is sure to show it.
    """
    whole = attention.chunk_context

    def shifted(encoding, query_pos_T, key_pos_T, state, start, end):
        ahead = min(end + 1, len(key_pos_T))
        context = whole(encoding, query_pos_T, key_pos_T, state, start, end)
        index_S = torch.arange(ahead)
        hidden_TS = index_S[start:end, None] - index_S[None, :] < -1
        return type(context)(
            context.pos_T, key_pos_T[:ahead], context.queries, slice(0, ahead), hidden_TS, context.state
        )

    monkeypatch.setattr(attention, "chunk_context", shifted)
    store = stores["markov"]
    found, below = against_optimum(trained(store, "alibi", tmp_path), store)
    assert ("windows", 4.0) in {(one.protocol, one.factor) for one in below}
    assert (found.loc[found["protocol"] == "windows", "verdict"] == "better (this run)").all(), found


@pytest.mark.parametrize("name", SPECS)
def test_every_target_against_its_own_window(name: str, stores: dict[str, Store]) -> None:
    store, process = stores[name], parse_process(SPECS[name])
    assert vars(process_of(store)) == vars(process)
    split = store.split("test")
    for protocol in protocols.names():
        layout = protocols[protocol]().layout(split.lengths, L, [L, 2 * L], 256)
        targets = Targets.of(layout.control, split, None)
        for groups in layout.rows.values():
            found = dict(
                zip(
                    zip(targets.document_N.tolist(), targets.place_N.tolist(), strict=True),
                    optimal_losses(process, split, groups),
                    strict=True,
                )
            )
            for group in groups:
                for document, start in zip(group.document_W, group.start_W, strict=True):
                    offset = split.offsets[document] + start
                    window = split.slice(offset, offset + group.length + 1).astype(np.int64)
                    alone = process.optimum(window[None])[0]
                    for i in range(group.length - group.scored, group.length):
                        assert found[int(document), int(start) + i + 1] == pytest.approx(alone[i], abs=1e-12)


def test_other_text_has_none(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for i in range(4):
        (tmp_path / "text" / f"{i}.txt").write_text(f"{i} text " * 200, encoding="utf-8")
    from extrapolate.data.sources import open_source

    settings = StoreSettings(source=str(tmp_path / "text"), vocab_size=260, min_heldout_tokens=2)
    assert process_of(build_store(open_source(settings.source), settings, tmp_path / "store")) is None
