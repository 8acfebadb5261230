"""The model card of an exported run: its training text, its loss by length, and how to load it."""

import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from extrapolate import specs
from extrapolate.catalogue.entries import paragraphs
from extrapolate.names import AS_TRAINED
from extrapolate.reports.escaping import markdown
from extrapolate.results import EVALS, kept
from extrapolate.runs.config import ImportedConfig, TrainedConfig
from extrapolate.runs.run import Run
from extrapolate.version import __version__

HEAD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags:
- positional-encoding
- length-extrapolation
---
"""
TRUSTED = ", trust_remote_code=True"
LOAD = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = {folder}  # its path, or its name on the Hub
tokenizer = AutoTokenizer.from_pretrained(folder{trusted})
model = AutoModelForCausalLM.from_pretrained(folder{trusted})
inputs = tokenizer("Once upon a time", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=20)[0]))
```
"""


def card(run: Run, folder: Path, architecture: str, remote_code: bool, use_cache: bool) -> str:
    """The README.md of an exported folder, from the run's settings, provenance and tables.

    folder: the exported folder, which the example loads by its name. remote_code: whether it has its own code.
    use_cache: whether earlier tokens can be cached during generation. The card is meant for publication, so it names no
    folder of this machine.
    """
    name = json.dumps(folder.name, ensure_ascii=False)
    parts = [
        HEAD,
        f"# {markdown(run.name)}",
        _paragraph(" ".join(_about(run))),
        "## Load it",
        LOAD.format(folder=name, trusted=TRUSTED if remote_code else ""),
        _paragraph(" ".join(_loading(run, architecture, remote_code, use_cache))),
        "## Training",
        "\n".join(f"- {line}" for line in _training(run)),
        "## Loss by length",
        *_losses(run),
        "## The encoding",
        *map(_paragraph, _encoding(run)),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _paragraph(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False))


def _about(run: Run) -> Iterator[str]:
    sizes = run.model.config
    yield (
        f"A language model with the positional encoding {markdown(run.model.label())}: {run.model.parameter_count():,} "
        f"parameters, {sizes.layers} layers, {sizes.width} wide, {sizes.vocab_size:,} tokens in its vocabulary."
    )
    if run.own_extension is not None:
        yield f"The extension {markdown(run.own_extension.label())} belongs to it and is always applied."
    yield f"It was written by extrapolate {__version__}, a tool that compares positional encodings."


def _loading(run: Run, architecture: str, remote_code: bool, use_cache: bool) -> Iterator[str]:
    users_file = run.config.encoding.file_sha256 is not None or run.config.extension_sha256 is not None
    if remote_code:
        yield (
            "No class of transformers computes this model. The folder has its own, in modeling_extrapolate.py and "
            "the files that this one imports: read them before you trust them."
        )
        if users_file:
            yield "A part of it is a file of the user who trained the model, and may import other packages."
        else:
            yield (
                "It needs torch and transformers alone. If extrapolate is installed, import "
                "extrapolate.transformers, and leave trust_remote_code out."
            )
        yield (
            "No padding may stand before a token: padding on the right changes nothing, and texts of several lengths "
            "are continued one at a time."
        )
    else:
        yield f"The class is {architecture}, of transformers itself."
    if not use_cache:
        yield (
            "The model is used without a cache: with each new token, what it makes of the earlier ones changes. So "
            "use_cache is false in its configuration, and every token that is generated takes a pass over the whole "
            "text."
        )
    longest = run.model.encoding.max_length
    if longest is not None:
        yield f"The encoding is defined up to {longest:,} positions; a longer text is refused."


def _training(run: Run) -> Iterator[str]:
    config = run.config
    if isinstance(config, ImportedConfig):
        yield f"It was imported from {_published(config.imported.source)}; how it was trained is not known."
        yield f"Training length: {config.seq_len:,} tokens."
        return
    assert isinstance(config, TrainedConfig)
    training = config.training
    yield f"Text: {_published(config.data.source)}, corpus {config.data.corpus_hash}."
    yield f"Training length: {config.trained_length:,} tokens. Texts are joined by the end-of-text token."
    trained = run.checkpoints("last")[-1].tokens  # whole batches
    yield (
        f"{trained:,} tokens in steps of {training.batch_tokens:,}, learning rate {training.lr:g}, seed "
        f"{training.seed}, {training.precision}."
    )
    if config.origin is not None:
        yield (
            f"It continues the run {markdown(config.origin.run)}. The first run of this chain was trained at "
            f"{config.seq_len:,} tokens."
        )
    made = run.provenance
    place = [f"extrapolate {made.get('version')}", *([f"commit {made['commit']}"] if made.get("commit") else [])]
    yield markdown(f"Trained with {', '.join(place)}, on {made.get('machine')}.")


def _published(source: str) -> str:
    """Where text or weights come from. Of a folder of this machine, only the name."""
    return markdown(Path(source).name if source.startswith(("/", "~", ".")) else source)


def _losses(run: Run) -> Iterator[str]:
    """A table for each protocol that the run was evaluated with, without extensions."""
    found = kept.read_kept(run.path, EVALS, [run.checkpoints("last")[-1].sha256])
    rows = [] if found is None else [row for row in found.to_pylist() if row["extension"] == AS_TRAINED]
    if not rows:
        yield "It was not evaluated before it was exported."
        return
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["protocol"], row["split"], row["precision"], row["corpus_hash"]), []).append(row)
    for (protocol, split, precision, corpus), mine in groups.items():
        learned = mine[0]["training_corpus"]
        other = f", which is not the text that it learned from ({learned})" if learned not in (None, corpus) else ""
        yield (
            f"Protocol `{protocol}`, split {split} of corpus {corpus}{other}, evaluated in {precision}. Loss is in nats"
            " per token."
        )
        yield "\n".join(
            [
                "| length | times L | loss | perplexity | loss without the longer context | targets |",
                "|---|---|---|---|---|---|",
                *(_row(row) for row in sorted(mine, key=lambda row: (row["factor"], row["targets_hash"]))),
            ]
        )
    chain = isinstance(run.config, TrainedConfig) and run.config.origin is not None
    yield _paragraph(
        "Compare losses only with models of the same corpus and tokens. L is the training length"
        f"{' of the first run of the chain' if chain else ''}, {run.config.seq_len:,} tokens. Without the longer "
        "context means: the same targets, the context cut back to L."
    )


def _row(row: dict[str, Any]) -> str:
    loss, perplexity = ("n/a" if row[name] is None else f"{row[name]:.4g}" for name in ("loss", "perplexity"))
    return (
        f"| {row['length']:,} | {row['factor']:g} | {loss} | {perplexity} | {row['control_loss']:.4g} | "
        f"{row['n_targets']:,} |"
    )


def _encoding(run: Run) -> Iterator[str]:
    encoding, name = run.model.encoding, run.config.encoding.name
    text = inspect.getdoc(type(encoding)) or ""
    yield from (markdown(paragraph) for paragraph in paragraphs(text).splitlines() if paragraph)
    yield f"In this model: `{specs.spell(name, encoding.arguments())}`."
    if encoding.caption:
        yield f"{markdown(encoding.caption)}."
