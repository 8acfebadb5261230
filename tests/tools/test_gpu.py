"""What `make gpu` writes, and what it says where there is no GPU."""

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import torch


@pytest.fixture(scope="module")
def gpu(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("gpu")


def test_without_a_gpu_it_says_so_in_one_line_and_writes_nothing(
    gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "PAGE", tmp_path / "gpu.md")
    assert gpu.main() == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert "no CUDA GPU" in written.err
    assert not (tmp_path / "gpu.md").exists()


def test_the_page_says_where_it_comes_from_and_has_every_row(gpu: ModuleType) -> None:
    tables = [
        gpu.Table("Training", "The median step.", pd.DataFrame([{"preset": "tiny", "tokens/s": "1,234"}])),
        gpu.Table("Losses", "Nats.", pd.DataFrame([{"model": "RoPE", "1x": "4.18"}, {"model": "ALiBi", "1x": "4.20"}])),
    ]
    assert gpu.page("A GPU, 4 cores", "2026-01-31", "0123456789ab", "57 passed in 80.12s", tables) == (
        "# On a GPU\n\n"
        "`make gpu` wrote this page on 2026-01-31, at commit 0123456789ab, on this machine: A GPU, 4 cores.\n\n"
        "Tests that need a GPU: 57 passed in 80.12s.\n\n"
        "## Training\n\nThe median step.\n\n| preset | tokens/s |\n| --- | --- |\n| tiny | 1,234 |\n\n"
        "## Losses\n\nNats.\n\n| model | 1x |\n| --- | --- |\n| RoPE | 4.18 |\n| ALiBi | 4.20 |\n"
    )


def test_steps_are_measured_in_every_mode(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "WARM_UP_STEPS", 0)
    modes = (("fp32", False, False), ("bf16", False, True))
    rows = gpu.training_table("cpu", presets={"tiny": (1, 2)}, modes=modes, repeats=1).rows
    assert rows["tokens"].tolist() == ["64", "128"] * 2
    assert rows["precision"].tolist() == ["fp32", "fp32", "bf16", "bf16"]
    assert rows["mode"].tolist() == ["eager"] * 2 + ["eager, fused attention"] * 2
    assert (rows["TFLOP/s"].astype(float) > 0).all()
    assert (rows["tokens/s"].str.replace(",", "").astype(int) > 0).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="make gpu runs them where there is a GPU")
def test_the_tests_for_a_gpu_are_run_and_counted(gpu: ModuleType) -> None:
    passed, said = gpu.run_tests()
    assert passed
    assert re.match(r"\d\d\d skipped.* in ", said), said
