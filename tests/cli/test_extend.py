"""Extensions from the command line: alone, joined, all of them; and what belongs to a run that was tuned."""

import shutil
from pathlib import Path

import pytest
import torch

import extrapolate as xt
from extrapolate.extensions.base import extensions
from extrapolate.extensions.stack import applicable
from extrapolate.names import AS_TRAINED, WITHOUT_OWN
from extrapolate.runs.run import Run

FEW = ["--factors", "1,2,4", "--max-targets", "256", "--protocol", "windows"]


def losses(run: Path, extension: str) -> list[float]:
    rows = xt.rows(run)
    return rows[rows["extension"] == extension].sort_values("length")["loss"].tolist()


def test_the_winner_is_named_with_what_it_costs(cli, ckpt):
    out = cli("eval-lengths", "ckpt/rope", "--extend", "window:size=1", "--extend", "pi:factor=64", *FEW).out
    for line, factor in zip([line for line in out.splitlines() if line.startswith("rope, ")], (1, 2, 4), strict=True):
        rows = xt.rows(ckpt / "rope")
        here = rows[rows["factor"] == factor].set_index("extension")
        best = here["loss"].idxmin()
        if here["loss"][AS_TRAINED] - here["loss"][best] < 0.0005:  # three digits show no difference
            best = AS_TRAINED
        assert f"{here['model'][best]} {here['loss'][best]:.3f}" in line
        assert ("no extension is lower" in line) == (best == AS_TRAINED)


def test_all_is_every_extension_that_applies(cli, ckpt, tiny):
    """Together, these encodings take every extension there is."""
    for pe in ("alibi", "sinusoidal"):
        cli("train", "--pe", pe, *tiny, "--out", f"ckpt/{pe}").succeeded()
    seen = set()
    for name in ("rope", "expe", "learned", "none", "alibi", "sinusoidal"):
        cli("eval-lengths", f"ckpt/{name}", "--extend", "all", *FEW, "--factors", "1,4").succeeded()
        rows = xt.rows(ckpt / name)
        assert set(rows["extension"]) == {AS_TRAINED, *applicable(Run.open(ckpt / name).build_model())}
        seen |= set(rows["extension"])
    assert seen == {AS_TRAINED, *extensions.names()}


def test_ssmax_clashes_with_log_n(cli, tiny, refused):
    cli("train", "--pe", "rope", "--ssmax", *tiny, "--out", "run").succeeded()
    refused(["eval-lengths", "run", "--extend", "log-n", *FEW], "SSMax", "pi")


def test_a_fitted_temperature_is_no_worse_than_none_where_it_was_fitted(cli, ckpt):
    flags = ["--split", "validation", "--factors", "1,4", "--max-targets", "100000", "--protocol", "windows"]
    cli("eval-lengths", "ckpt/none", "--extend", "temperature", *flags).succeeded()
    plain, fitted = (losses(ckpt / "none", name) for name in (AS_TRAINED, "temperature"))
    assert fitted[0] == plain[0]
    assert fitted[1] <= plain[1] + 1e-4


def test_precisions_are_rows_of_their_own(cli, ckpt):
    cli("eval-lengths", "ckpt/expe", "--precision", "fp32,bf16,int8", *FEW).succeeded()
    rows = xt.rows(ckpt / "expe").set_index(["precision", "factor"])["loss"]
    for factor in (1, 2, 4):
        exact = rows["fp32", factor]
        for fewer, most in (("bf16", 0.1), ("int8", 0.3)):
            assert rows[fewer, factor] != exact
            assert abs(rows[fewer, factor] - exact) < most


@pytest.fixture(scope="module")
def _tuned(quietly, trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned") / "tuned"
    flags = ["--seq-len", 64, "--extend", "pi:factor=4", "--tokens", 2048, "--lr", 1e-3, "--no-compile"]
    quietly("train", "--from", trained / "rope", *flags, "--out", out)
    return out


class TestTuning:
    @pytest.fixture
    def tuned(self, _tuned, ckpt):
        """RoPE trained at 16, continued at 64 with its positions interpolated."""
        return shutil.copytree(_tuned, ckpt / "tuned")

    def test_it_remembers_where_it_comes_from(self, tuned, ckpt):
        config = Run.open(tuned).config
        before = Run.open(ckpt / "rope")
        assert config.origin is not None
        assert (config.origin.run, config.origin.seq_len, config.origin.label) == ("rope", 16, "RoPE")
        assert config.origin.weights_sha256 == before.checkpoints("last")[0].sha256
        assert (config.extension, config.training.seq_len, config.seq_len) == ("pi:factor=4", 64, 16)
        assert (config.model, config.encoding) == (before.config.model, before.config.encoding)

    def test_its_extension_belongs_to_it(self, cli, tuned):
        cli(
            "eval-lengths", tuned, "--extend", WITHOUT_OWN, "--extend", AS_TRAINED, "--extend", "log-n", *FEW
        ).succeeded()
        rows = xt.rows(tuned)
        assert set(rows["extension"]) == {AS_TRAINED, WITHOUT_OWN, "log-n"}
        labels = {extension: set(mine["model"]) for extension, mine in rows.groupby("extension")}
        assert labels == {
            AS_TRAINED: {"RoPE + PI(4), tuned at 64"},
            WITHOUT_OWN: {"RoPE, tuned at 64 with PI(4), taken off"},
            "log-n": {"RoPE + PI(4) + log-n, tuned at 64"},
        }
        assert set(rows["own_extension"]) == {"pi:factor=4"}
        assert set(rows["seq_len"]) == {16}
        assert set(rows["trained_length"]) == {64}
        assert losses(tuned, WITHOUT_OWN) != losses(tuned, AS_TRAINED)

    def test_what_clashes_with_its_own_is_left_out_or_refused(self, cli, tuned, refused):
        cli("eval-lengths", tuned, "--extend", "all", *FEW, "--factors", "4").succeeded()
        assert "yarn" in set(xt.rows(tuned)["extension"])
        assert "pi" not in set(xt.rows(tuned)["extension"])
        refused(["eval-lengths", tuned, "--extend", "pi:factor=2", *FEW], "cannot be joined: PI is there twice")
        refused(["train", "--config", tuned / "config.json", "--out", "bad"], "origin", "--from")

    def test_a_table_is_never_clamped_in_training(self, cli, ckpt, refused):
        refused(["train", "--from", "ckpt/learned", "--seq-len", 64, "--out", "bad"], "up to 16 tokens", "table-resize")
        flags = ["--seq-len", 64, "--tokens", 1024, "--extend", "table-resize", "--out", "ckpt/stretched"]
        cli("train", "--from", "ckpt/learned", *flags).succeeded()
        cli("eval-lengths", "ckpt/stretched", *FEW).succeeded()
        assert xt.rows(ckpt / "stretched")["loss"].notna().all()

    def test_an_encodings_own_weights_are_made_and_kept(self, cli, ckpt):
        cli("train", "--from", "ckpt/none", "--pe", "kerple", "--tokens", 512, "--lr", 1e-9, "--out", "new").succeeded()
        cli("train", "--from", "new", "--tokens", 512, "--lr", 1e-9, "--out", "again").succeeded()
        first, second = (xt.load(path).model.blocks[0].encoding for path in ("new", "again"))
        torch.testing.assert_close(first.p_H, second.p_H, atol=1e-4, rtol=0)
        cli("eval-lengths", "new", *FEW).succeeded()
        assert set(xt.rows("new")["model"]) == {"KERPLE, from NoPE"}

    def test_what_cannot_be_is_refused(self, ckpt, refused, bpe_store):
        for words, *flags in (
            ["--from", "--extend", "pi:factor=4", "--pe", "rope"],
            ["nowhere", "--from", "nowhere"],
            ["does not apply to ExPE", "--from", "ckpt/expe", "--extend", "yarn"],
            ["leaves a constant out", "--from", "ckpt/rope", "--extend", "temperature"],
            ["leave out", "--from", "ckpt/rope", "--preset", "gpt-256"],
            ["--batch-tokens 1", "--from", "ckpt/rope", "--batch-tokens", "1"],
            ["trained on corpus", "--from", "ckpt/rope", "--data", bpe_store],
        ):
            refused(["train", *flags, "--out", "bad"], words)
