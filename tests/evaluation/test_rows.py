"""Rows of known targets, by hand; and what every row says of its run: names, hashes, how the weights were made."""

import math
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from extrapolate import __version__, results
from extrapolate.evaluation.rows import BLOCK_FACTOR, TargetsAtLength, common, label_of
from extrapolate.evaluation.targets import Targets
from extrapolate.evaluation.window_losses import Measured
from extrapolate.extensions.stack import parse
from extrapolate.model.config import ModelConfig
from extrapolate.model.model import Model
from extrapolate.runs.config import (
    DataConfig,
    EncodingConfig,
    ImportedConfig,
    ImportSource,
    OriginConfig,
    TrainedConfig,
)
from extrapolate.runs.run import Run
from extrapolate.runs.training_config import TrainingConfig
from extrapolate.runs.weights import Checkpoint

SPLIT = SimpleNamespace(ids=["one", "other"])


def scores_of(seq_len: int, optimum: bool = True) -> TargetsAtLength:
    """Windows of 2 L, all of them scored: of one document at 0, 3 L and 20 L, and of another at 1."""
    rng = np.random.default_rng(seq_len)
    starts = [(0, 0), (0, 3 * seq_len), (0, 20 * seq_len), (1, 1)]
    targets = [(document, start + i + 1, i) for document, start in starts for i in range(2 * seq_len)]
    document_N, place_N, index_N = np.array(sorted(targets)).T
    count = len(targets)
    bytes_N = rng.integers(1, 9, count).astype(float)
    control_N, optimum_N = rng.uniform(1, 3, (2, count))
    window_N = np.repeat(np.arange(len(starts)), 2 * seq_len)
    known = Targets(document_N, place_N, bytes_N), control_N, index_N, window_N
    return TargetsAtLength(*known, optimum_N if optimum else None, rng.random(count) < 0.2)


def measured_of(scores: TargetsAtLength, inputs: int = 600) -> Measured:
    loss_N = np.random.default_rng(1).uniform(1, 3, len(scores.control_N)).astype(np.float32)
    return Measured(loss_N, inputs, 1.5, 77.25)


def test_a_row_has_the_means_over_targets_and_what_was_measured() -> None:
    scores = scores_of(4)
    measured = measured_of(scores)
    row = scores.row({"run": "r", "factor": 2.0}, measured)
    total = sum(float(loss) for loss in measured.loss_N)
    n_bytes = sum(scores.targets.bytes_N)
    assert (row["run"], row["factor"]) == ("r", 2.0)
    assert row["loss"] == pytest.approx(total / 32)
    assert row["perplexity"] == pytest.approx(math.exp(total / 32))
    assert row["bits_per_byte"] == pytest.approx(total / math.log(2) / n_bytes)
    assert row["control_loss"] == pytest.approx(sum(scores.control_N) / 32)
    assert row["optimum_loss"] == pytest.approx(sum(scores.optimum_N) / 32)
    assert (row["n_targets"], row["n_documents"], row["n_bytes"]) == (32, 2, n_bytes)
    assert row["tokens_per_s"] == 400
    assert row["peak_mib"] == 77.25
    assert row["evaluated_at"].utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - row["evaluated_at"]) < timedelta(minutes=1)


def test_without_a_measurement_the_control_and_the_counts_are_still_there() -> None:
    row = scores_of(4, optimum=False).row({}, None)
    for name in ("loss", "perplexity", "bits_per_byte", "optimum_loss", "tokens_per_s", "peak_mib"):
        assert row[name] is None, name
    assert row["control_loss"] == pytest.approx(scores_of(4).control_N.mean())
    assert row["n_targets"] == 32


def test_what_is_not_known_or_beyond_the_largest_number() -> None:
    scores = scores_of(4)
    with_longer = scores.row({}, measured_of(scores, inputs=0))  # its windows came with longer ones
    assert with_longer["tokens_per_s"] is None
    assert with_longer["loss"] is not None
    no_text = replace(scores, targets=replace(scores.targets, bytes_N=np.zeros(32))).row({}, measured_of(scores))
    assert no_text["bits_per_byte"] is None
    assert no_text["loss"] is not None
    large = scores.row({}, Measured(np.full(32, 800.0), 1, 1.0, None))
    assert (large["loss"], large["perplexity"]) == (800, math.inf)


@pytest.mark.parametrize("optimum", [True, False])
@pytest.mark.parametrize("seq_len", [1, 4, 5])
def test_documents_rows_are_sums_over_stretches_and_buckets(seq_len: int, optimum: bool) -> None:
    """A target at a time: stretches of 16 L by where its window begins, buckets of L/2 by its place in that."""
    scores = scores_of(seq_len, optimum)
    measured = measured_of(scores)
    width = max(1, seq_len // 2)
    expected = defaultdict(list)
    for n, (document, place, index) in enumerate(
        zip(scores.targets.document_N, scores.targets.place_N, scores.index_N, strict=True)
    ):
        start = place - 1 - index  # an input before its target
        expected[SPLIT.ids[document], start // (16 * seq_len), index // width * width].append(n)
    setting = {"run": "r", "seq_len": seq_len, "factor": 2.0}
    rows = scores.document_rows(setting, measured, SPLIT)
    assert BLOCK_FACTOR == 16
    assert {block for _, block, _ in expected} == {0, 1}
    assert len(rows) == len(expected)
    for row in rows:
        chosen = expected.pop((row["document"], row["block"], row["position"]))
        assert (row["run"], row["factor"], row["n_targets"]) == ("r", 2.0, len(chosen))
        assert "seq_len" not in row  # a column of the other table
        assert row["loss"] == pytest.approx(measured.loss_N[chosen].mean())
        assert row["control_loss"] == pytest.approx(scores.control_N[chosen].mean())
        assert row["n_bytes"] == scores.targets.bytes_N[chosen].sum()
        assert ("optimum_loss" in row) == optimum
        if optimum:
            assert row["optimum_loss"] == pytest.approx(scores.optimum_N[chosen].mean())
    assert not expected


def test_a_window_that_crosses_a_stretchs_end_is_of_the_one_that_it_begins_in() -> None:
    """With all of its targets; and the next stretch has the window that begins at its first token."""
    seq_len, starts = 4, (62, 64)
    index_N = np.tile(np.arange(8), 2)
    place_N = np.repeat(starts, 8) + index_N + 1
    targets = Targets(np.zeros(16, np.int64), place_N, np.ones(16))
    scores = TargetsAtLength(targets, np.ones(16), index_N, np.repeat([0, 1], 8), None, np.zeros(16, bool))
    rows = scores.document_rows({"seq_len": seq_len}, None, SPLIT)
    blocks = [(row["block"], row["position"], row["n_targets"]) for row in rows]
    assert blocks == [(block, position, 2) for block in (0, 1) for position in (0, 2, 4, 6)]


def test_key_tokens_have_their_own_losses_whatever_the_others_are() -> None:
    """In the row, and in the rows of documents, of which some have none."""
    scores = scores_of(4)
    measured = measured_of(scores)
    measured.loss_N[~scores.key_N] = math.nan
    row, rows = scores.row({}, measured), scores.document_rows({"seq_len": 4}, measured, SPLIT)
    assert math.isnan(row["loss"])
    assert row["n_key"] == scores.key_N.sum() > 1
    assert row["key_loss"] == pytest.approx(measured.loss_N[scores.key_N].mean())
    assert row["key_control_loss"] == pytest.approx(scores.control_N[scores.key_N].mean())
    assert row["key_optimum_loss"] == pytest.approx(scores.optimum_N[scores.key_N].mean())
    for name in ("key_loss", "key_control_loss", "key_optimum_loss"):
        assert sum(one["n_key"] * one[name] for one in rows if one["n_key"]) / row["n_key"] == pytest.approx(row[name])
        assert {one[name] for one in rows if not one["n_key"]} == {None}
    none = replace(scores, key_N=np.zeros(32, bool)).row({}, measured)
    assert none["n_key"] == 0
    assert none["key_loss"] is none["key_control_loss"] is none["key_optimum_loss"] is None


def test_documents_rows_without_a_measurement_have_no_loss() -> None:
    rows = scores_of(4).document_rows({"seq_len": 4}, None, SPLIT)
    assert all("loss" not in row and row["control_loss"] > 0 for row in rows)


SIZES = ModelConfig(vocab_size=31, width=16, layers=1, heads=1, kv_heads=1, head_dim=16, ff_width=16)


def config_of(pe: str = "rope", origin: str | None = None, begun_at: int = 16, **more: Any) -> TrainedConfig:
    """A run of L = 16; or one tuned at 16 that began at another length, as what `origin` is the name of."""
    training = {"seq_len": 16, "tokens": 4096} | more.pop("training", {})
    return TrainedConfig(
        preset="tiny",
        encoding=EncodingConfig(name=pe),
        model=SIZES.model_copy(update=more.pop("model", {})),
        training=TrainingConfig(**training),
        data=DataConfig(path="data", source="stdlib", corpus_hash="h"),
        origin=None
        if origin is None
        else OriginConfig(run="r0", weights_sha256="w", config_hash="c", label=origin, seq_len=begun_at),
        **more,
    )


def imported(extension: str | None = None) -> ImportedConfig:
    return ImportedConfig(
        encoding=EncodingConfig(name="rope"),
        model=SIZES,
        extension=extension,
        imported=ImportSource(name="SmolLM", source="hf:smol", sha256="s", seq_len=2048),
    )


def model_of(config: TrainedConfig | ImportedConfig) -> Model:
    return Model(config.model, config.encoding.name, {}, config.seq_len)


@pytest.mark.parametrize(
    ("config", "extension", "taken_off", "label"),
    [
        (config_of(), None, False, "RoPE"),
        (config_of(), "pi:factor=4", False, "RoPE + PI(4)"),
        (config_of(), None, True, "RoPE"),
        (config_of(extension="yarn"), "yarn", False, "RoPE + YaRN"),
        # Tuned: at another length, or at its own again.
        (config_of(origin="RoPE", begun_at=8), None, False, "RoPE, tuned at 16"),
        (config_of(origin="RoPE"), None, False, "RoPE, tuned at 16"),
        (config_of(origin="RoPE", extension="pi"), "pi", False, "RoPE + PI, tuned at 16"),
        (config_of(origin="RoPE", extension="pi"), None, False, "RoPE, tuned at 16"),
        (config_of(origin="RoPE", extension="pi"), None, True, "RoPE, tuned at 16 with PI, taken off"),
        (config_of(origin="RoPE"), None, True, "RoPE, tuned at 16"),
        # Tuned with another encoding than it began with.
        (config_of("none", origin="RoPE"), None, False, "NoPE, from RoPE"),
        (config_of("none", origin="RoPE", begun_at=8), None, False, "NoPE, tuned at 16, from RoPE"),
        (config_of("none", origin="RoPE", extension="log-n"), None, True, "NoPE with log-n, taken off, from RoPE"),
        # Labelled: by its label alone, whatever its optimiser.
        (config_of(label="full"), "pi:factor=4", False, "full + PI(4)"),
        (config_of(label="full", training={"optimizer": "adamw"}), None, False, "full"),
        (config_of(label="full", origin="full", extension="pi"), "pi", False, "full + PI, tuned at 16"),
        (config_of("none", origin="full"), None, False, "NoPE, from full"),
        # Made elsewhere: by its own name.
        (imported(), None, False, "SmolLM"),
        (imported(), "ntk", False, "SmolLM + NTK"),
        (imported(), None, True, "SmolLM"),
        (imported("yarn:factor=4"), "yarn:factor=4", False, "SmolLM + YaRN(4)"),
        (imported("yarn:factor=4"), None, True, "SmolLM, YaRN(4) taken off"),
        (imported("yarn:factor=4"), "ntk", True, "SmolLM + NTK, YaRN(4) taken off"),
    ],
)
def test_a_name_in_tables_says_what_was_done(
    config: TrainedConfig | ImportedConfig, extension: str | None, taken_off: bool, label: str
) -> None:
    stack = None if extension is None else parse(extension)
    off = parse(config.extension) if taken_off and config.extension else None
    assert label_of(config, model_of(config), stack, off) == label


def row_of(config: TrainedConfig | ImportedConfig, folder: Path) -> dict[str, Any]:
    run = Run(folder / "the-run", config, {"version": "0.0.1", "commit": "abc", "machine": "a machine"})
    run.path.mkdir(exist_ok=True)
    checkpoint = Checkpoint(folder / "model.safetensors", step=7, tokens=1792, sha256="weights")
    return common(run, model_of(config), checkpoint, "bf16", "test", "corpus")


def test_runs_that_differ_in_their_seed_or_in_what_their_names_tell_have_one_setting(tmp_path: Path) -> None:
    base = row_of(config_of(), tmp_path)
    for other, same_setting, same_run in (
        (config_of(), True, True),
        (config_of(training={"seed": 1}), True, True),
        (config_of(label="full"), True, True),
        (config_of("alibi"), True, False),
        (config_of(model={"canon": True, "activation": "gelu_tanh"}), True, False),  # its name tells it
        (config_of(model={"layers": 3}), False, False),
        (config_of(training={"lr": 1e-2}), False, False),
        (config_of(training={"tokens": 8192}), False, False),
    ):
        row = row_of(other, tmp_path)
        assert (row["setting_hash"] == base["setting_hash"]) == same_setting
        assert (row["config_hash"] == base["config_hash"]) == same_run


def test_a_row_says_what_the_run_is_and_how_it_was_trained(tmp_path: Path) -> None:
    config = config_of(origin="RoPE", begun_at=8, extension="pi", training={"seed": 3, "precision": "bf16"})
    row = row_of(config, tmp_path)
    expected = {
        "run": "the-run", "split": "test", "step": 7, "precision": "bf16", "encoding": "rope",
        "encoding_arguments": "{}", "display": "RoPE", "caption": "", "seq_len": 8, "trained_length": 16,
        "origin": "r0", "imported": None, "preset": "tiny", "own_extension": "pi", "training_seconds": None,
        "corpus_hash": "corpus", "training_corpus": "h",
        "weights_sha256": "weights", "tokens": 1792, "seed": 3, "training_precision": "bf16",
        "training_version": "0.0.1", "training_commit": "abc", "training_machine": "a machine",
        "version": __version__, "parameters": model_of(config).parameter_count(),
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_training_took_the_median_steps_time_of_a_run_that_was_not_tuned(tmp_path: Path) -> None:
    (tmp_path / "the-run").mkdir()
    rates = pd.DataFrame({"step": [1, 2, 2, 3], "tokens_per_s": [100.0, 400.0, None, 900.0]})  # one is a validation
    results.write_frame(tmp_path / "the-run" / "metrics.parquet", rates)
    assert row_of(config_of(), tmp_path)["training_seconds"] == pytest.approx(4096 / 400)
    assert row_of(config_of(origin="RoPE"), tmp_path)["training_seconds"] is None


def test_of_an_imported_run_nothing_is_said_of_its_training(tmp_path: Path) -> None:
    row = row_of(imported(), tmp_path)
    for name in ("tokens", "seed", "training_precision", "training_version", "training_commit", "training_machine"):
        assert row[name] is None, name
    assert (row["imported"], row["trained_length"], row["origin"]) == ("hf:smol", 2048, None)
