"""What every row says of its run: names in tables, hashes that group runs, and how the weights were made."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from extrapolate import __version__, results
from extrapolate.evaluation.rows import common, label_of
from extrapolate.extensions.recipe import parse
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

SIZES = ModelConfig(vocab_size=31, width=16, layers=1, heads=1, kv_heads=1, head_dim=16, ff_width=16)


def config_of(pe: str = "rope", origin: str | None = None, begun_at: int = 16, **more: Any) -> TrainedConfig:
    """A run of L = 16; or one tuned at 16 that began at another length, as what `origin` is the name of."""
    training = {"seq_len": 16, "tokens": 4096} | more.pop("training", {})
    return TrainedConfig(
        preset="tiny",
        encoding=EncodingConfig(name=pe),
        model=SIZES,
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
    recipe = None if extension is None else parse(extension)
    off = parse(config.extension) if taken_off and config.extension else None
    assert label_of(config, model_of(config), recipe, off) == label


def row_of(config: TrainedConfig | ImportedConfig, folder: Path) -> dict[str, Any]:
    run = Run(folder / "the-run", config, {"version": "0.0.1", "commit": "abc", "machine": "a machine"})
    run.path.mkdir(exist_ok=True)
    checkpoint = Checkpoint(folder / "model.safetensors", step=7, tokens=1792, sha256="weights")
    return common(run, model_of(config), checkpoint, "bf16", "test", "corpus")


def test_runs_that_differ_in_their_encoding_or_seed_alone_have_one_setting(tmp_path: Path) -> None:
    base = row_of(config_of(), tmp_path)
    for other, same_setting, same_run in (
        (config_of(), True, True),
        (config_of(training={"seed": 1}), True, True),
        (config_of("alibi"), True, False),
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
        "corpus_hash": "corpus", "weights_sha256": "weights", "tokens": 1792, "seed": 3, "training_precision": "bf16",
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
