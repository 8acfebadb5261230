"""The special tokens of a checkpoint, from its files to losses, prompts, likelihoods and the exported folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

import extrapolate as xt
from extrapolate.data.store import Store
from extrapolate.evaluation.protocols.base import protocols
from extrapolate.interop.imported import import_checkpoint
from extrapolate.runs.run import Run

transformers = pytest.importorskip("transformers")

L = 64
TEXTS = ["once upon a time there was a price", "an <s>old</s> price", "a text of a time"]
GEMMA = ("<pad>", "<eos>", "<bos>", "-<s>", "-</s>")  # where <s> and </s> are HTML tags
DEEPSEEK = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")
CHAT = ("<s>", "</s>", "<|im_end|>", "<pad>")
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Writes a checkpoint of random weights into the folder `tiny`, and returns the model of transformers."""
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"text": " ".join([TEXTS[i % 3]] * 9) + f" {i}"}) for i in range(20)]
    Path("d.jsonl").write_text("\n".join(lines))

    def make(tokenizer: Tokenizer, files: dict[str, Any] | None = None, **config: Any) -> Any:
        torch.manual_seed(0)
        sizes = {"vocab_size": tokenizer.get_vocab_size(), "hidden_size": 32, "intermediate_size": 64}
        heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": L}
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes | heads | config)).eval()
        model.save_pretrained("tiny")
        tokenizer.save("tiny/tokenizer.json")
        for name, content in (files or {}).items():
            Path("tiny", name).write_text(content if isinstance(content, str) else json.dumps(content))
        return model

    return make


def store_of() -> Store:
    return xt.tokenize("d.jsonl", "store", tokenizer="hf:tiny", min_heldout_tokens=L, dedup=False)


def test_losses_after_the_checkpoints_own_beginning_are_those_of_transformers(tiny, byte_tokenizer) -> None:
    theirs = tiny(byte_tokenizer(*GEMMA, template="<bos> $A"), bos_token_id=258, eos_token_id=257, pad_token_id=256)
    store = store_of()
    row = xt.evaluate("hf:tiny", data=store, factors=(1,), protocols="windows", bos=True, max_targets=4 * L).iloc[0]
    assert (store.manifest["eos_id"], row["bos_token"]) == (257, 258)
    split, losses = store.split("test"), []
    for group in protocols["windows"](bos=True).layout(split.lengths, L, [L], 4 * L).rows[L]:
        for document, start in zip(group.document_W, group.start_W, strict=True):
            first = split.offsets[document] + start
            text = torch.from_numpy(split.slice(first, first + L + 1).astype("int64"))
            with torch.inference_mode():
                logits = theirs(torch.cat([torch.tensor([258]), text[1:-1]])[None]).logits[0]
            losses.append(torch.nn.functional.cross_entropy(logits, text[1:]))
    assert row["loss"] == pytest.approx(torch.stack(losses).mean().item(), abs=1e-5)


def test_a_training_from_a_checkpoint_ends_documents_as_it_does(tiny, byte_tokenizer) -> None:
    """Its vocabulary has rows to spare, and a new <eos> would have taken one that was never trained."""
    generation = {"eos_token_id": [257, 256]}
    tiny(byte_tokenizer(*DEEPSEEK), {"generation_config.json": generation}, vocab_size=320, bos_token_id=256,
         eos_token_id=257)  # fmt: skip
    store = store_of()
    assert (store.manifest["eos_id"], store.vocab_size) == (257, 258)
    run = xt.train(start="hf:tiny", data=store, tokens=256, batch_tokens=128, lr=1e-3, out="tuned")
    assert (run.special_tokens.bos, run.special_tokens.eos) == (None, (257, 256))
    assert Run.open(Path("ckpt/hf-tiny")).special_tokens.bos == 256
    xt.export(run, "out")
    assert json.loads(Path("out/config.json").read_text())["eos_token_id"] == [257, 256]
    assert json.loads(Path("out/generation_config.json").read_text())["eos_token_id"] == [257, 256]
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    assert tokenizer.eos_token_id == 257
    assert tokenizer("ab").input_ids == byte_tokenizer().encode("ab").ids


def test_a_document_may_hold_what_is_no_end_in_the_checkpoint(tiny, byte_tokenizer) -> None:
    tiny(byte_tokenizer("<s>", "-</s>", "<|endoftext|>"), bos_token_id=256, eos_token_id=258)
    store = store_of()
    assert (store.manifest["eos_id"], store.lossless) == (258, True)
    tokens = store.split("train").slice(0, store.split("train").n_tokens).tolist()
    assert "an <s>old</s> price" in store.tokenizer().decode(tokens, skip_special_tokens=False)


def test_neither_padding_nor_truncation_reaches_a_prompt(tiny, byte_tokenizer) -> None:
    tokenizer = byte_tokenizer("<s>", "</s>")
    tokenizer.enable_padding(length=32)
    model = tiny(tokenizer, bos_token_id=256, eos_token_id=257)
    run, ids = import_checkpoint("tiny"), byte_tokenizer().encode("hello").ids
    assert xt.attention(run, "hello").ids == ids
    assert xt.generate(run, "hello", max_new_tokens=4) == xt.generate(run, ids, max_new_tokens=4)
    foreign = xt.foreign(model, "Padded", seq_len=L, tokenizer=tokenizer)
    assert foreign.tokenizer.encode("hello").ids == ids
    tokenizer.no_padding()
    tokenizer.enable_truncation(2)
    tokenizer.save("tiny/tokenizer.json")
    assert xt.foreign(model, "Cut", seq_len=L, tokenizer="tiny").tokenizer.encode("hello").ids == ids


@pytest.mark.parametrize("template", ["<s> $A", "<s> $A </s>"])
def test_only_text_is_scored_and_after_one_beginning(tiny, byte_tokenizer, template: str) -> None:
    """lm-eval's own model is no reference: it begins whole texts twice."""
    lm_eval = pytest.importorskip("extrapolate.interop.lm_eval")
    instance = pytest.importorskip("lm_eval.api.instance").Instance
    theirs = tiny(byte_tokenizer("<s>", "</s>", template=template), bos_token_id=256, eos_token_id=257)
    text = "Once upon a time"
    ids = [256, *byte_tokenizer().encode(text).ids]
    with torch.inference_mode():
        scores = theirs(torch.tensor([ids])).logits[0].log_softmax(-1)[range(len(text)), ids[1:]]
    assert scores.sum().item() == pytest.approx(-89.109, abs=1e-3)
    lm = lm_eval.RunLM(import_checkpoint("tiny"), device="cpu")
    for spelled in (text, f"<s>{text}"):  # as chat templates write it
        whole = lm.loglikelihood_rolling([instance("loglikelihood_rolling", {}, (spelled,), 0)])
        assert whole == pytest.approx([scores.sum().item()], abs=1e-4)
        ((answer, _),) = lm.loglikelihood([instance("loglikelihood", {}, (spelled[:-5], spelled[-5:]), 0)])
        assert answer == pytest.approx(scores[-5:].sum().item(), abs=1e-4)


def test_an_export_says_of_its_tokens_what_the_checkpoint_says(tiny, byte_tokenizer) -> None:
    generation = {"bos_token_id": 256, "eos_token_id": [257, 258], "temperature": 0.6, "do_sample": True}
    own = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "<|im_end|>",
        "pad_token": "<pad>", "auto_map": {"AutoTokenizer": ["code.Tokenizer", None]},
    }  # fmt: skip
    tiny(
        byte_tokenizer(*CHAT, template="<s> $A"), bos_token_id=256, eos_token_id=[257, 258], pad_token_id=259,
        files={"generation_config.json": generation, "tokenizer_config.json": own, "chat_template.jinja": TEMPLATE},
    )  # fmt: skip
    run = import_checkpoint("tiny")
    assert (run.special_tokens.bos, run.special_tokens.eos) == (256, (257, 258))
    xt.export(run, "out")
    for name, kept in (("config.json", ("bos_token_id", "eos_token_id", "pad_token_id")), ("generation_config.json",
                       generation)):  # fmt: skip
        before, after = (json.loads(Path(folder, name).read_text()) for folder in ("tiny", "out"))
        assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    written = json.loads(Path("out/tokenizer_config.json").read_text())
    assert written == {name: value for name, value in own.items() if name != "auto_map"}  # code that is not there
    Path("tiny/tokenizer_config.json").write_text(json.dumps(written))
    theirs, ours = (transformers.AutoTokenizer.from_pretrained(folder) for folder in ("tiny", "out"))
    chat = [{"role": "user", "content": "hello"}]
    assert ours("hello").input_ids == theirs("hello").input_ids == [256, *byte_tokenizer().encode("hello").ids]
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.apply_chat_template(chat, tokenize=False) == "<s>hello<|im_end|>"
    assert transformers.AutoModelForCausalLM.from_pretrained("out").generation_config.eos_token_id == [257, 258]
