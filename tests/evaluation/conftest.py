"""Runs that were never trained, for what does not depend on training."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from extrapolate.data.store import Store
from extrapolate.runs.config import TrainedConfig
from extrapolate.runs.resolve import TrainingRequest, resolve
from extrapolate.runs.run import Run

SIZES = {"width": 32, "layers": 2, "heads": 2, "head_dim": 16, "ff_width": 48}


@pytest.fixture(scope="session")
def random_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Makes a finished run of L = 16 with random weights, scaled up so that losses differ between tokens and positions.

    The same call gives the same run, which is not to be changed unless it is `fresh`.
    """
    known: dict[str, Run] = {}

    def make(
        store: Store,
        pe: str = "rope",
        seq_len: int = 16,
        *,
        seed: int = 0,
        fresh: bool = False,
        change: Callable[[TrainedConfig], TrainedConfig] = lambda config: config,
        **sizes: Any,
    ) -> Run:
        request = TrainingRequest(pe=pe, model=SIZES | sizes, training={"seq_len": seq_len, "tokens": 8192})
        config = change(resolve(request, store)[0])
        key = f"{store.path} {seed} {config.model_dump_json()}"
        if fresh or key not in known:
            tokenizer = (store.path / "tokenizer.json").read_bytes()
            run = Run.create(tmp_path_factory.mktemp("runs") / "the-run", config, tokenizer)
            torch.manual_seed(seed)
            model = run.build_model(drawn=True)
            with torch.no_grad():
                model.head.weight.mul_(20)
                for block in model.blocks:
                    block.attention.qkv.weight.mul_(10)
            run.save_weights(model, 32, 8192, final=True)
            if fresh:
                return run
            known[key] = run
        return known[key]

    return make
