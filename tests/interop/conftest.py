"""A finished run of any encoding, without training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from extrapolate import specs
from extrapolate.extensions import recipe as recipes
from extrapolate.model.config import ModelConfig
from extrapolate.runs import resolve
from extrapolate.runs.config import (
    DataConfig,
    EncodingConfig,
    ImportedConfig,
    ImportSource,
    OriginConfig,
    RunConfig,
    TrainedConfig,
)
from extrapolate.runs.run import Run
from extrapolate.runs.training_config import TrainingConfig

L, VOCABULARY = 8, 300
SIZES = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "ff_width": 48}


@pytest.fixture(scope="session")
def random_run(bpe: Tokenizer) -> Callable[..., Run]:
    """Makes a run of L = 8 with random weights, large enough that every part matters; `tuned_at` another length."""

    def make(
        path: Path,
        encoding: str,
        extension: str | None = None,
        changes: dict[str, Any] | None = None,
        tuned_at: int | None = None,
    ) -> Run:
        spec = specs.parse(encoding)
        recipe = None if extension is None else recipes.parse(extension)
        known = {
            "encoding": EncodingConfig(name=spec.name, arguments=dict(spec.arguments)),
            "model": ModelConfig.model_validate(SIZES | {"vocab_size": VOCABULARY} | (changes or {})),
            "extension": recipe.text if recipe else None,
            "extension_sha256": recipe.sha256() if recipe else None,
        }
        config: RunConfig
        if tuned_at is None:
            source = ImportSource(name="random", source="random", sha256="0" * 64, seq_len=L)
            config = ImportedConfig(**known, imported=source)
        else:
            origin = OriginConfig(run="first", weights_sha256="0" * 64, config_hash="0", label="first", seq_len=L)
            training = TrainingConfig(seq_len=tuned_at, tokens=4096)
            data = DataConfig(path="store", source="corpus", corpus_hash="0")
            config = TrainedConfig(**known, preset="tiny", training=training, data=data, origin=origin)
        config, user_file = resolve.with_resolved_encoding(config)
        run = Run.create(path, config, bpe.to_str().encode(), user_file)
        run.keep_extensions(recipe.files if recipe else ())
        model = run.build_model(drawn=True)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                noise = torch.randn(weight.shape, generator=generator)
                weight.copy_(weight + 0.1 * noise if ".encoding." in name else 0.15 * noise + (weight.ndim == 1))
        model.constrain()
        run.save_weights(model, 0, 0, final=True)
        return Run.open(path)

    return make
