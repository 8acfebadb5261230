"""Models that other libraries run. Anything that maps token ids to logits can be evaluated like a run.

Shapes: B batch, T tokens, V vocabulary.
"""

import copy
import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from extrapolate import files
from extrapolate.data import special_tokens
from extrapolate.data import tokenizer as tokenizers
from extrapolate.data.special_tokens import SpecialTokens
from extrapolate.encodings.base import Dims, Encoding, Storage
from extrapolate.encodings.plan import PLAIN, Plan
from extrapolate.errors import UserError
from extrapolate.evaluation.causality import check_longest
from extrapolate.evaluation.memory import of_memory
from extrapolate.extensions.stack import ExtensionStack
from extrapolate.runs import tensors
from extrapolate.runs.config import EncodingConfig, ForeignConfig, ForeignSource
from extrapolate.runs.run import CONFIG, Run, file_sha256
from extrapolate.runs.weights import Checkpoint
from extrapolate.specs import user_files

USER_MODEL = "model.py"  # the folder's copy of the user's file that loads the model
TRIED = 32  # tokens in the window that a model is tried with

Logits = Callable[[Tensor], Any]


class _ForeignEncoding(Encoding):
    """Stands for whatever another library's model does with position, which cannot be changed."""

    source = "unknown"
    accepts = frozenset()

    def __init__(self, name: str, seq_len: int, max_length: int | None) -> None:
        super().__init__(Dims(1, 1, 1, seq_len))
        self.display, self.max_length = name, max_length


class ForeignModel:
    """Wraps a call that maps token ids, int64 [B, T], to logits, [B, T, V], in the interface that evaluation needs."""

    ssmax = False

    def __init__(
        self, call: Logits, name: str, seq_len: int, vocab_size: int, max_length: int | None, device: str
    ) -> None:
        self.call, self.name, self.seq_len, self.vocab_size = call, name, seq_len, vocab_size
        self.device = torch.device(device)
        self.encoding: Encoding = _ForeignEncoding(name, seq_len, max_length)
        self.encodings: list[Encoding] = [self.encoding]

    def label(self) -> str:
        return self.name

    def parameter_count(self) -> int | None:
        """The number of parameters of a torch module; None for anything else."""
        return sum(p.numel() for p in self.call.parameters()) if isinstance(self.call, nn.Module) else None

    def weights_sha256(self) -> str | None:
        """A hash of the state dict of a torch module, as it is now; None for anything else."""
        if not isinstance(self.call, nn.Module):
            return None
        state = self.call.state_dict()
        plain = {name: x for name, x in state.items() if type(x) is Tensor and x.layout == torch.strided}
        return tensors.sha256_of({name: x.cpu() for name, x in plain.items() if not x.is_meta})

    def defined_at(self, length: int, plan: Plan) -> bool:
        return self.encoding.defined_at(length, plan)

    def resolve(self, plan: Plan, storage: Storage = "fp32") -> Plan:
        """The plan itself, which is always the plain one because no extension applies."""
        assert plan == PLAIN
        return plan

    def hidden(self, tokens_BT: Tensor, plan: Any, first_wanted: int = 0) -> Tensor:
        """The logits themselves, float32, so that the head has nothing to do."""
        try:
            found = self.call(tokens_BT)
        except Exception as error:
            if of_memory(error):
                raise
            raise UserError(
                f"{self.name} fails on a window of {tokens_BT.shape[1]} tokens ({type(error).__name__}: {error}): if "
                "that is too long, give `max_length`, the longest window that the model is defined for"
            ) from error
        found = getattr(found, "logits", found)
        logits_BTV = found if isinstance(found, Tensor) else torch.as_tensor(np.asarray(found))
        if logits_BTV.ndim != 3 or logits_BTV.shape[:2] != tokens_BT.shape or not logits_BTV.is_floating_point():
            kind = str(logits_BTV.dtype).removeprefix("torch.")
            raise UserError(
                f"{self.name} gave {kind} {list(logits_BTV.shape)} for token ids {list(tokens_BT.shape)}; expected "
                "logits, floating-point [batch, tokens, vocabulary]"
            )
        return logits_BTV[:, first_wanted:].to(self.device, torch.float32)

    def head(self, hidden_RD: Tensor) -> Tensor:
        return hidden_RD

    def to(self, device: str) -> Self:
        """Does nothing: the model stays where its library put it."""
        return self

    def copied(self) -> Self:
        """A copy of a torch module that shares its parameters; itself for anything else, or if it cannot be copied."""
        copied = copy.copy(self)
        if isinstance(self.call, nn.Module):
            with suppress(Exception):  # it is another library's
                copied.call = copy.deepcopy(self.call, {id(one): one for one in self.call.parameters()})
        return copied


@dataclass(frozen=True)
class ForeignRun:
    """A model that another library runs, with the folder that keeps its rows. Made by `foreign`."""

    folder: Run
    model: ForeignModel
    config: ForeignConfig
    own_extension: ExtensionStack | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def provenance(self) -> dict[str, Any]:
        """Which version, commit and machine made the folder."""
        return self.folder.provenance

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.folder.tokenizer

    @property
    def special_tokens(self) -> SpecialTokens:
        """The tokens that begin and end its texts."""
        return self.folder.special_tokens

    def checkpoints(self, which: str) -> list[Checkpoint]:
        """The model in its current state; that of half a budget is not known.

        The hash is of its name and revision, where it came from, the user's file, and the weights as they are now.
        """
        if which == "half":
            return []
        known = self.config.foreign
        known_by = (known.name, known.revision, known.source, known.file_sha256, self.model.weights_sha256())
        return [Checkpoint(self.path, 0, 0, hashlib.sha256(repr(known_by).encode()).hexdigest())]

    def build_model(self) -> ForeignModel:
        """The model."""
        return self.model

    def load_model(self, checkpoint: Checkpoint) -> ForeignModel:
        """The model."""
        return self.model

    def training_seconds(self) -> None:
        """Not known."""

    def training_taken(self) -> None:
        """Not known."""


def foreign(
    call: Logits,
    name: str,
    seq_len: int,
    tokenizer: str | Path | Tokenizer,
    *,
    revision: str | None = None,
    max_length: int | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
) -> ForeignRun:
    """Wraps a model of another library, anything that maps token ids to logits, to evaluate it like a run.

    call: takes token ids, an int64 torch tensor [B, T], and returns logits [B, T, V], as a torch tensor, a NumPy array
    or an object with `logits`, like the models of `transformers`. A torch module is put into eval mode. name: the
    model's name in tables. seq_len: the training length L in tokens, the unit of factors. tokenizer: the model's own,
    as a tokenizer.json, a folder that has one (a run, a token store, a checkpoint), or an object of `tokenizers`.
    revision: its version, such as a commit or a step (default: none). max_length: the longest window for which the
    model is defined, in tokens (default: no limit); longer ones are n/a in tables. device: where token ids are put.
    out: the folder that keeps the rows (default: ckpt/foreign-NAME).

    A torch module is recognised by its name, revision and a hash of its weights, anything else by its name, revision
    and the file that it is loaded from: give another revision when it changes otherwise.

    The model is tried with a short window. Raises UserError if it does not return logits for every token of the
    vocabulary, returns different logits the second time, or sees later tokens; or if `out` holds another model.
    """
    if seq_len < 2:
        raise UserError(f"the training length of {name} must be 2 tokens or more, not {seq_len}")
    if not name.strip():
        raise UserError("a model of another library needs a name for tables")
    if isinstance(call, nn.Module):
        call.eval()
    if isinstance(tokenizer, Tokenizer):
        own, folder = tokenizers.without_lengths(Tokenizer.from_str(tokenizer.to_str())), None
    else:
        path = Path(tokenizer)
        folder = path if path.is_dir() else path.parent
        own = tokenizers.read(path / "tokenizer.json" if path.is_dir() else path)
    special = special_tokens.find(own, folder)
    given = _tried(ForeignModel(call, name, seq_len, 0, max_length, device), own)
    model = ForeignModel(call, name, seq_len, given, max_length, device)
    check_longest(model, PLAIN, [min(TRIED, seq_len, max_length or TRIED)], name)
    config = ForeignConfig(
        encoding=EncodingConfig(name="foreign"),
        foreign=ForeignSource(
            name=name,
            revision=revision,
            source=getattr(call, "__qualname__", type(call).__qualname__),
            seq_len=seq_len,
            vocab_size=given,
            max_length=max_length,
            weights_sha256=model.weights_sha256(),
        ),
    )
    slug = re.sub(r"[^\w.=+-]+", "-", name).strip("-")
    if not (slug or out):
        raise UserError(f"the name '{name}' has no letter or digit to call a folder by: give `out`")
    return _kept(Path(out or Path("ckpt") / f"foreign-{slug}"), model, config, own, special)


def loaded(file: Path, function: str) -> ForeignRun:
    """Calls a function of a user's file that returns what `foreign` returns, and keeps a copy of the file.

    Raises UserError if the file or the function does not exist or fails.
    """
    load = user_files.load_function(file, function)

    def wrong(error: BaseException) -> BaseException:
        if isinstance(error, UserError):
            return error
        return UserError(f"{file}: {function}() failed: {type(error).__name__}: {error}")

    made = user_files.of_user(load, wrong)
    if not isinstance(made, ForeignRun):
        raise UserError(f"{file}: {function}() returned {type(made).__name__}; expected what xt.foreign(...) returns")
    known = {"source": f"{file.name}:{function}", "file_sha256": file_sha256(file)}
    config = made.config.model_copy(update={"foreign": made.config.foreign.model_copy(update=known)})
    files.write_bytes(made.path / USER_MODEL, file.read_bytes())
    return _kept(made.path, made.model, config, made.tokenizer, made.special_tokens)


@torch.inference_mode()
def _tried(model: ForeignModel, tokenizer: Tokenizer) -> int:
    """Tries a model; returns its number of logits per token. Raises UserError if it cannot be evaluated.

    Added tokens may have no logits, since few texts use them: evaluations check those that they read.
    """
    vocab_size = max((tokenizer.get_vocab(with_added_tokens=False) or tokenizer.get_vocab()).values()) + 1
    length = min(TRIED, model.seq_len, model.encoding.max_length or TRIED)
    tokens_BT = torch.randint(vocab_size, (2, length), generator=torch.Generator().manual_seed(0)).to(model.device)
    logits_BTV = model.hidden(tokens_BT, PLAIN)
    if (given := logits_BTV.shape[-1]) < vocab_size:
        raise UserError(f"{model.name} gives {given} logits a token, and its tokenizer has {vocab_size} tokens")
    if not bool(logits_BTV.isfinite().all()):
        raise UserError(f"{model.name} gives logits that are not finite")
    return given


def _kept(
    path: Path, model: ForeignModel, config: ForeignConfig, tokenizer: Tokenizer, special: SpecialTokens
) -> ForeignRun:
    """The model with its folder. Raises UserError if the folder holds another run or model."""
    with files.locked(path):
        files.remove_partials(path)
        if (path / CONFIG).exists():
            there, now = Run.open(path).config, (config.config_hash(), config.foreign.weights_sha256)
            if not isinstance(there, ForeignConfig) or (there.config_hash(), there.foreign.weights_sha256) != now:
                raise UserError(
                    f"{path} holds another run or model, or this one with other weights: choose another folder, or "
                    "delete it"
                )
        ids = {"bos_token_id": special.bos, "eos_token_id": list(special.eos)}
        kept = Run.create(path, config, tokenizer.to_str().encode(), special=special_tokens.files_of(ids))
        return ForeignRun(kept, model, config)
