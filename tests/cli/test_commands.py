"""What the commands do when all goes well: their files, their tables, their promises."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import extrapolate as xt
from extrapolate import files, results

FEW = ["--max-targets", "512"]
# Everything that may differ between two evaluations of the same weights.
VOLATILE = ["tokens_per_s", "peak_mib", "evaluated_at"]

USER_ENCODING = """
from extrapolate.encodings.base import Encoding


class Slope(Encoding):
    display = "Slope"
    source = "this file"

    def __init__(self, dims, *, slope: float = 0.5):
        super().__init__(dims)
        self.slope = slope

    def bias(self, pos_T, pos_S):
        return (-self.slope * (pos_T[:, None] - pos_S[None, :])).expand(self.dims.heads, -1, -1)
"""


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


class TestTokenize:
    def test_a_store_has_its_files_and_says_what_it_holds(self, cli, corpus, leftovers, tmp_path):
        ended = cli("tokenize", corpus, "--out", "data/new", "--vocab-size", 300, "--min-heldout-tokens", 300)
        said = ended.succeeded().err
        manifest = json.loads((tmp_path / "data/new/manifest.json").read_text())
        assert manifest["vocab_size"] == 300
        assert f"corpus {manifest['corpus_hash']}" in said
        for name in ("train", "validation", "test"):
            assert manifest["splits"][name]["documents"] > 0
            assert f"{name}: {manifest['splits'][name]['documents']} documents" in said
        assert (tmp_path / "data/new/tokenizer.json").is_file()
        assert not leftovers(tmp_path)


class TestTrain:
    def test_a_run_has_its_files(self, trained):
        run = trained / "rope"
        names = {path.name for path in run.iterdir() if path.name != ".lock"}
        assert names == {
            "config.json", "model.safetensors", "tokenizer.json", "metrics.jsonl", "metrics.parquet", "checkpoints",
            "special_tokens.json",
        }  # fmt: skip
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows if "loss" in row] == list(range(1, 11))
        assert [row["step"] for row in rows if "val_loss" in row] == list(range(1, 11))
        for row in rows:
            assert row["tokens"] == 512 * row["step"]
        assert len(pq.read_table(run / "metrics.parquet")) == len(rows)

    def test_the_same_settings_make_the_same_weights_and_another_seed_others(self, cli, tiny, trained, tmp_path):
        """A run's own configuration without --data, too: it is trained on the run's corpus, not on the default one."""
        cli("train", "--config", trained / "rope" / "config.json", "--out", "same").succeeded()
        cli("train", "--pe", "rope", *tiny, "--out", "other", "--seed", 1).succeeded()
        assert weights(tmp_path / "same") == weights(trained / "rope")
        assert weights(tmp_path / "other") != weights(trained / "rope")


class TestEvalLengths:
    def test_a_table_for_each_protocol(self, cli, ckpt):
        ended = cli("eval-lengths", ckpt / "rope", "--factors", "4,1,2,2", "--extend", "pi:factor=2", *FEW)
        out = ended.succeeded().out
        for protocol in ("windows", "fixed-target"):
            assert f"{protocol}, loss in nats per token" in out
        header = next(line for line in out.splitlines() if "ev=1" in line)
        assert header.split() == ["run", "model", "ev=1", "ev=2", "ev=4", "control"]
        shown = [line.split() for line in out.splitlines() if line.split()[:1] == ["rope"]]
        rows = xt.rows(ckpt / "rope").set_index(["extension", "protocol", "factor"])
        for extension, words, *mine in (("as-trained", 2, *shown[::2]), ("pi:factor=2", 4, *shown[1::2])):
            for protocol, line in zip(("windows", "fixed-target"), mine, strict=True):
                losses = [rows.loc[(extension, protocol, factor), "loss"] for factor in (1, 2, 4)]
                losses.append(rows.loc[(extension, protocol, 4), "control_loss"])
                assert line[words:] == [f"{loss:.3f}" for loss in losses]
        assert "…" not in out

    def test_evaluating_again_replaces_the_same_rows_and_keeps_the_others(self, cli, ckpt):
        """In a folder called seed=0, as sweeps call them: Parquet would read a column from the name."""
        run, flags = ckpt / "seed=0", ["--factors", "1,2", "--protocol", "windows", *FEW]
        (ckpt / "rope").rename(run)
        cli("eval-lengths", run, *flags).succeeded()
        before = xt.rows(run)
        assert set(before["seed"]) == {0}
        cli("eval-lengths", run, *flags).succeeded()
        pd.testing.assert_frame_equal(before.drop(columns=VOLATILE), xt.rows(run).drop(columns=VOLATILE))
        cli("eval-lengths", run, *flags, "--extend", "pi").succeeded()
        assert len(xt.rows(run)) == 4
        place = ["document", "block", "position"]
        assert not xt.rows(run, "documents").duplicated([*results.EVAL_DOCUMENTS.key, *place]).any()

    def test_losses_of_every_token(self, cli, ckpt):
        run, flags = ckpt / "rope", ["--factors", "1,2", "--protocol", "windows", *FEW]
        cli("eval-lengths", run, *flags, "--extend", "pi", "--keep-losses").succeeded()
        cli("eval-lengths", run, *flags, "--keep-losses").succeeded()
        losses = xt.rows(run, "targets")
        key = ["extension", "factor"]
        means = losses.groupby(key, observed=True)["loss"].mean()
        assert means.to_dict() == pytest.approx(xt.rows(run).set_index(key)["loss"].to_dict(), abs=1e-5)
        assert losses.groupby(key, observed=True).size().tolist() == [512] * 4

    def test_kept_checkpoints_are_evaluated_like_the_last(self, cli, ckpt):
        """--keep-every 2048 of 5 120 tokens in steps of 512: steps 4 and 8, and the last, 10."""
        flags = ["--factors", "1", "--protocol", "windows", *FEW]
        cli("eval-lengths", ckpt / "rope", "--checkpoint", "all", *flags).succeeded()
        rows = xt.rows(ckpt / "rope").sort_values("step")
        assert rows["step"].tolist() == [4, 8, 10]
        assert rows["tokens"].tolist() == [2048, 4096, 5120]
        assert rows["weights_sha256"].nunique() == 3
        assert rows["loss"].is_monotonic_decreasing

    def test_a_moved_store_is_named(self, cli, ckpt, store, tmp_path):
        shutil.copytree(store, tmp_path / "moved")
        config = ckpt / "rope" / "config.json"
        record = files.read_sealed(config)
        record["config"]["data"]["path"] = str(tmp_path / "gone")
        files.write_sealed(config, record)
        flags = ["--factors", "1", *FEW]
        assert "gone is not a token store" in cli("eval-lengths", ckpt / "rope", *flags).error()
        cli("eval-lengths", ckpt / "rope", *flags, "--data", "moved").succeeded()


class TestUserEncoding:
    def test_it_trains_and_evaluates_from_its_copy(self, cli, tiny, store, tmp_path, contents):
        own_file = tmp_path / "mine" / "slope.py"
        own_file.parent.mkdir()
        own_file.write_text(USER_ENCODING)
        cli("train", "--pe", "mine/slope.py:Slope:slope=1", *tiny, "--out", "run").succeeded()
        run = tmp_path / "run"
        assert (run / "encoding.py").read_text() == own_file.read_text()
        config = json.loads((run / "config.json").read_text())["config"]
        assert config["encoding"]["arguments"] == {"slope": 1.0}
        assert len(config["encoding"]["file_sha256"]) == 64
        own_file.unlink()
        assert "Slope(slope=1)" in cli("eval-lengths", "run", "--factors", "1,2", *FEW).succeeded().out
        cli("train", "--config", "run/config.json", "--data", store, "--out", "again").succeeded()
        first, second = (xt.load(path).checkpoints("last")[0].sha256 for path in ("run", "again"))
        assert first == second
        copy = run / "encoding.py"
        copy.write_text(copy.read_text().replace("-self.slope", "-2 * self.slope"))
        before = contents(run)
        message = cli("eval-lengths", "run", "--factors", "1", *FEW).error()
        assert "encoding.py" in message
        assert "changed" in message
        assert contents(run) == before
