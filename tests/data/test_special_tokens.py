"""Which tokens begin and end a text, by what a checkpoint's files say."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from extrapolate.data.special_tokens import SpecialTokens, find, usable_ids
from extrapolate.data.tokenizer import load

# As in Gemma, where <s> and </s> are HTML tags, in DeepSeek, and in a model of which a text may hold </s>.
GEMMA = ("<pad>", "<eos>", "<bos>", "-<s>", "-</s>")
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
HTML = ("<s>", "-</s>", "<|endoftext|>")
DISAGREE = "texts {} with {}, as {} says; {} says {}"


def written(folder: Path, tokenizer: Tokenizer, files: dict[str, Any]) -> str:
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return f"hf:{folder}"


def ids(bos: object = None, eos: object = None) -> dict[str, object]:
    return {"bos_token_id": bos, "eos_token_id": eos}


@pytest.mark.parametrize(
    ("names", "template", "files", "bos", "eos", "notes"),
    [
        (GEMMA, "<bos> $A", {"config": ids(258, 257)}, 258, (257,), ()),
        (DEEPSEEK, "", {"config": ids(256, 257)}, 256, (257,), ()),
        (HTML, "", {"config": ids(256, 258)}, 256, (258,), ()),
        (("<a>", "<b>"), "<a> $A <b>", {}, 256, (257,), ()),
        (("<a>", "<b>"), "", {"tokenizer_config": {"bos_token": "<a>", "eos_token": {"content": "<b>"}}}, 256, (257,),
         ()),
        (("<a>", "<b>"), "", {"config": {"text_config": ids(256, [257, 256])}}, 256, (257, 256), ()),
        (("<a>", "<b>", "<c>"), "", {"config": ids(256, 257), "generation_config": ids(256, [258, 257])}, 256,
         (257, 258), ()),
        (("<a>", "<b>", "<c>"), "", {"config": ids(None, 257), "tokenizer_config": {"eos_token": "<c>"}}, None, (257,),
         (DISAGREE.format("end", "<b> (257)", "config.json", "tokenizer_config.json", "<c> (258)"),)),
        # The configurations of transformers say 1 and 2 by default, which are bytes here; and there is no token 999.
        (("<s>", "</s>"), "", {"config": ids(1, 2)}, 256, (257,), tuple(
            f"config.json says that texts {verb} with token {one}, which is no special token: ignored"
            for verb, one in (("begin", 1), ("end", 2)))),
    ],
)  # fmt: skip
def test_files_come_before_the_tokenizer_and_this_before_names(
    tmp_path: Path, byte_tokenizer, names: tuple[str, ...], template: str, files: dict[str, Any], bos: int | None,
    eos: tuple[int, ...], notes: tuple[str, ...],
) -> None:  # fmt: skip
    tokenizer = byte_tokenizer(*names, template=template)
    written(tmp_path / "checkpoint", tokenizer, files)
    assert find(tokenizer, tmp_path / "checkpoint") == SpecialTokens(bos, eos, notes)


def test_a_tokenizer_is_loaded_with_the_files_beside_it(tmp_path: Path, byte_tokenizer) -> None:
    spec = written(tmp_path / "a", byte_tokenizer("<a>", "<b>", template="<a> $A"), {"config": ids(256, 257)})
    for form in (spec, f"{tmp_path}/a/tokenizer.json"):
        tokenizer, special = load(form)
        assert (special.bos, special.eos, tokenizer.get_vocab_size()) == (256, (257,), 258)
        assert tokenizer.encode("ab").ids == byte_tokenizer("<a>").encode("ab").ids
    tokenizer, special = load(written(tmp_path / "b", byte_tokenizer("<a>"), {"config": ids(256)}))
    assert (special.eos, tokenizer.token_to_id("<eos>")) == ((257,), 257)
    assert special.notes == (f"hf:{tmp_path}/b has no end-of-text token: <eos> is added, with the new id 257",)


def test_ids_of_text_are_not_kept_of_a_configuration(byte_tokenizer) -> None:
    tokenizer = byte_tokenizer("<a>", "<b>")
    assert usable_ids(tokenizer, ids(1, [256, 257]) | {"pad_token_id": -1}) == {"eos_token_id": [256, 257]}
    assert usable_ids(tokenizer, ids(256) | {"pad_token_id": 257}) == {"bos_token_id": 256, "pad_token_id": 257}
