"""What lies beside an exported model: its tokenizer and card; and users' own files in it."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import extrapolate as xt
from extrapolate import results
from extrapolate.errors import UserError
from extrapolate.results import kept
from extrapolate.runs.run import Run

transformers = pytest.importorskip("transformers")

MY_ENCODING = f"{Path(__file__).parents[2]}/examples/my_encoding.py:LogBias:strength=2"
L = 8  # of `random_run`


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is trusted is copied to a folder of the test, not of the developer."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, name)  # it is the folder of another test


class TestFolder:
    @pytest.mark.parametrize("name", ["rope", "learned"])
    def test_the_tokenizer_is_the_runs(self, ckpt: Path, tmp_path: Path, name: str) -> None:
        made = xt.export(ckpt / name, tmp_path / "out")
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", trust_remote_code=made.remote_code)
        ours, text = Run.open(ckpt / name).tokenizer, "What a day, and what a night!"
        assert tokenizer(text).input_ids == ours.encode(text).ids
        assert tokenizer.decode(tokenizer(text).input_ids) == text
        assert (tokenizer.eos_token, tokenizer.bos_token) == ("<eos>", None)
        assert tokenizer.model_input_names == ["input_ids", "attention_mask"]  # what models take, in every version
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        assert config["eos_token_id"] == tokenizer.eos_token_id

    def test_the_card_has_the_losses_of_the_tables(self, evaluated: Path, tmp_path: Path) -> None:
        run = shutil.copytree(evaluated / "expe", tmp_path / "expe")
        both = kept.read_kept(run, results.EVALS).to_pylist()
        of_other = {"corpus_hash": "0ther", "targets_hash": "0thers", "loss": 7.25}
        kept.add(run, results.EVALS, [row | {"weights_sha256": "5" * 64, "loss": 9.0} for row in both])
        kept.add(run, results.EVALS, [row | of_other for row in both if row["factor"] == 1])
        xt.export(run, tmp_path / "out")
        card = (tmp_path / "out" / "README.md").read_text()
        rows = xt.rows(evaluated / "expe").query("extension == 'as-trained'")
        assert len(rows) == 6
        for row in rows.itertuples():
            assert f"| {row.length} | {row.factor:g} | {row.loss:.4g} | " in card
        shown = [line for line in card.splitlines() if line.startswith("| ")]
        assert len(shown) == 6 + 2 + 2 * 2  # for each protocol and text, only the last checkpoint
        assert card.count("| 7.25 |") == 2
        own = rows["corpus_hash"].iloc[0]
        assert card.count(f"of corpus 0ther, which is not the text that it learned from ({own}), evaluated in") == 2
        assert card.count(f"of corpus {own}, evaluated in") == 2
        assert f"{rows['tokens'].iloc[0]:,} tokens in steps of" in card
        assert "our reading of arXiv 2509.19569" in card
        assert "corpus " + rows["corpus_hash"].iloc[0] in card
        assert "trust_remote_code=True" in card
        for extension in ("pi", "ntk"):
            assert f" {extension}" not in card.lower().replace("description", "")

    def test_what_the_card_says_to_run_runs_and_no_folder_of_the_machine_is_in_it(
        self, ckpt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = Run.open(ckpt / "expe")
        assert Path(run.trained.data.source).is_absolute()
        xt.export(run, tmp_path / 'my "first" model')
        card = (tmp_path / 'my "first" model' / "README.md").read_text()
        assert str(tmp_path) not in card
        assert str(Path(run.trained.data.source).parent) not in card
        assert "Text: corpus, corpus " in card
        monkeypatch.chdir(tmp_path)
        exec(card.partition("```python\n")[2].partition("```")[0], {})
        assert capsys.readouterr().out.startswith("Once upon a time")

    @pytest.mark.parametrize(
        ("encoding", "said", "not_said"),
        [
            ("alibi", ["import extrapolate.transformers"], ["a file of the user", "used without a cache"]),
            ("random", ["used without a cache", "import extrapolate.transformers"], ["a file of the user"]),
            # The package does not know the user's encoding.
            (MY_ENCODING, ["a file of the user who trained the model"], ["import extrapolate.transformers"]),
        ],
    )
    def test_the_card_says_what_loading_it_takes(
        self, random_run: Callable[..., Run], tmp_path: Path, encoding: str, said: list[str], not_said: list[str]
    ) -> None:
        xt.export(random_run(tmp_path / "run", encoding), tmp_path / "out")
        card = (tmp_path / "out" / "README.md").read_text().replace("\n", " ")
        assert [phrase for phrase in said if phrase not in card] == []
        assert [phrase for phrase in not_said if phrase in card] == []


class TestUsersFiles:
    def test_names_that_both_have_stay_apart(self, tmp_path: Path, random_run: Callable[..., Run]) -> None:
        """Of the user's file, which has a `slopes`, a `register` and an `Attention` of its own."""
        (tmp_path / "mine.py").write_bytes(UNDER_OTHER_NAMES + MINE)
        run = random_run(tmp_path / "run", f"{tmp_path / 'mine.py'}:Mine")
        xt.export(run, tmp_path / "out")
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", trust_remote_code=True)
        tokens = torch.arange(L)[None]
        with torch.no_grad():
            torch.testing.assert_close(model(tokens).logits, run.model(tokens), rtol=0, atol=1e-5)
            assert (run.model(tokens) - random_run(tmp_path / "other", "alibi").model(tokens)).abs().max() > 1e-3

    def test_code_that_came_with_a_run_is_read_first(
        self, tmp_path: Path, random_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = random_run(tmp_path / "run", MY_ENCODING)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
        monkeypatch.setattr("extrapolate.runs.trust._now", set())
        with pytest.raises(UserError, match="code that came with data"):
            xt.export(run.path, tmp_path / "out")
        assert xt.export(run.path, tmp_path / "out", trust_code=True).remote_code

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (
                b"from extrapolate import train",
                r"encoding\.py: an exported model cannot import train from extrapolate, only",
            ),
            (b"import extrapolate.errors", r"encoding\.py: import extrapolate\.errors under a name"),
        ],
    )
    def test_what_cannot_be_copied_is_refused(
        self, tmp_path: Path, random_run: Callable[..., Run], line: bytes, words: str
    ) -> None:
        (tmp_path / "mine.py").write_bytes(UNDER_OTHER_NAMES.replace(b"import", line + b"\nimport", 1) + MINE)
        run = random_run(tmp_path / "run", f"{tmp_path / 'mine.py'}:Mine")
        with pytest.raises(UserError, match=words):
            xt.export(run, tmp_path / "out")
        assert not (tmp_path / "out").exists()


# It gives `scaled`, `torch` and a base class to `MINE`.
UNDER_OTHER_NAMES = b"""\xef\xbb\xbfimport math, torch, extrapolate.encodings.base as theirs
from typing import TYPE_CHECKING
from extrapolate.encodings import (
    alibi,  # has `slopes`, too
    rope as _rope,
); from extrapolate import Encoding as Base, UserError
if TYPE_CHECKING:
    from extrapolate.model.config import ModelConfig
def scaled(x):
    from extrapolate.encodings.alibi import slopes
    assert (theirs.Encoding, alibi.slopes, issubclass(UserError, ValueError)) == (Base, slopes, True)
    return math.log(x)
"""
MINE = b"""

def slopes(heads):
    return [2.0 ** -h for h in range(heads)]


def register(encoding):
    return encoding


class Attention:
    strength = scaled(3.0)


class Other(Base):
    display = "Other"


@register
class Mine(Base):
    display = "Mine"

    def __init__(self, dims):
        super().__init__(dims)
        self.other = Other(dims)

    def bias(self, pos_T, pos_S):
        slope_H = torch.tensor(slopes(self.dims.heads)) * Attention.strength
        return -slope_H[:, None, None] * (pos_T[:, None] - pos_S[None, :])
"""
